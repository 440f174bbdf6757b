"""The exported networks are the trained ones: strict loading, and equal logits."""

from dataclasses import dataclass

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    ElectraForMaskedLM,
    ElectraForPreTraining,
)

from electra_ds.data.batch import Batch

POSITIONS = ("absolute", "relative", "both")
SHARING = ("shared", "none", "gdes")
ALL = [
    pytest.param(positions, sharing, embedding, id=f"{positions}-{sharing}-{embedding}")
    for positions in POSITIONS
    for sharing in SHARING
    for embedding in (16, 32)  # the generator's hidden size, the discriminator's: the other one projects
]


@dataclass
class Example:
    """One `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` without padding."""

    ids: torch.Tensor
    types: torch.Tensor


def make_example(length: int, vocab_size: int, seed: int, second: int = 0) -> Example:
    """``second``: how many of the tokens are of type 1."""
    ids = torch.randint(5, vocab_size, (length,), generator=torch.Generator().manual_seed(seed))
    ids[0], ids[-1] = 2, 3
    types = torch.zeros(length, dtype=torch.long)
    if second:
        types[-second:] = 1
        ids[-second - 1] = 3
    return Example(ids, types)


def rows_of(examples: list[list[Example]], length: int) -> Batch:
    """Rows of examples, packed one after the other and padded to ``length``."""
    shape = (len(examples), length)
    ids, segments, positions, types = (torch.zeros(shape, dtype=torch.long) for _ in range(4))
    for row, packed in enumerate(examples):
        start = 0
        for number, example in enumerate(packed, start=1):
            place = slice(start, start + len(example.ids))
            ids[row, place], types[row, place] = example.ids, example.types
            segments[row, place] = number
            positions[row, place] = torch.arange(len(example.ids))
            start = place.stop
    none = torch.zeros((len(examples), 1))
    return Batch(ids, segments, positions, types, none.long(), none, none, True, int((segments > 0).sum()), 0)


@torch.no_grad()
def trained_logits(exported, network: str, batch: Batch) -> torch.Tensor:
    """What the joint model says: (B, L), or (B, L, V) for the generator."""
    model = exported.model
    if network == "discriminator":
        states = model.discriminator(model._embed_corrupted(batch.input_ids, batch), batch.segments)
        return model.rtd_head(states)
    embedded = model.embeddings(batch.input_ids, batch.token_type_ids, batch.position_ids)
    states = model.generator(embedded, batch.segments)
    logits = model.mlm_head(model.mlm_head.transform(states.flatten(0, 1)), model.embeddings.word)
    return logits.view(*batch.input_ids.shape, -1)[..., : model.vocab.size]


def load(exported, network: str):
    """Load by transformers, strictly: everything found, everything used."""
    cls = AutoModelForPreTraining if network == "discriminator" else AutoModelForMaskedLM
    remote = exported.config.model.positions != "absolute"
    folder = exported.folder / network
    model, report = cls.from_pretrained(folder, output_loading_info=True, trust_remote_code=remote)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], f"{kind}: {report[kind]}"
    return model.eval()


def assert_equal(trained: torch.Tensor, loaded: torch.Tensor) -> None:
    assert trained.shape == loaded.shape
    assert trained.std() > 0.05, "a constant would prove nothing"
    torch.testing.assert_close(loaded, trained, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("network", ["discriminator", "generator"])
@pytest.mark.parametrize(("positions", "sharing", "embedding"), ALL)
@torch.no_grad()
def test_logits_on_padded_packed_and_pair_inputs(exported, vocab, positions, sharing, embedding, network):
    source = exported(positions=positions, sharing=sharing, embedding=embedding)
    loaded = load(source, network)

    longest = make_example(150, vocab.size, seed=1)  # distances beyond the last bucket's border
    pair = make_example(90, vocab.size, seed=2, second=35)
    short = make_example(3, vocab.size, seed=3)
    padded = rows_of([[longest], [pair], [short]], 160)
    real = padded.segments > 0
    theirs = loaded(
        input_ids=padded.input_ids, token_type_ids=padded.token_type_ids, attention_mask=real.long()
    ).logits
    assert_equal(trained_logits(source, network, padded)[real], theirs[real])

    packed = rows_of([[short, pair, make_example(41, vocab.size, seed=4)]], 160)
    trained = trained_logits(source, network, packed)[0]
    alone = loaded(input_ids=pair.ids[None], token_type_ids=pair.types[None]).logits[0]
    assert_equal(trained[3:93], alone)


STOCK = [("discriminator", ElectraForPreTraining), ("generator", ElectraForMaskedLM)]


@pytest.mark.parametrize(("network", "cls"), STOCK)
def test_absolute_positions_load_into_the_stock_classes(exported, network, cls):
    source = exported(positions="absolute")
    model, report = cls.from_pretrained(source.folder / network, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.config.architectures == [cls.__name__]


@pytest.mark.parametrize("positions", POSITIONS)
def test_only_the_network_that_projects_has_a_projection(exported, positions):
    def projects(folder) -> bool:
        with safe_open(folder / "model.safetensors", "pt") as file:
            return any("embeddings_project" in name for name in file.keys())  # noqa: SIM118

    narrow, wide = exported(positions=positions, embedding=16), exported(positions=positions, embedding=32)
    assert projects(narrow.discriminator)
    assert not projects(narrow.generator)
    assert not projects(wide.discriminator)
    assert projects(wide.generator)


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("network", ["discriminator", "generator"])
def test_the_file_holds_every_parameter_once_and_no_buffer(exported, vocab, sharing, network):
    folder = exported(sharing=sharing).folder / network
    total = 0
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118
            tensor = file.get_tensor(name)
            assert tensor.dtype == torch.float32
            assert vocab.padded_size not in tensor.shape, f"{name} has padding rows"
            assert not name.endswith(("position_ids", "generator_lm_head.weight"))
            assert tensor.abs().max() < 1e3, f"{name} holds a padding row"
            total += tensor.numel() * 4
    size = (folder / "model.safetensors").stat().st_size
    assert total < size < total + 10_000


def test_disentangled_tables_leave_as_the_sum(exported, vocab):
    source = exported(sharing="gdes")
    state = source.model.state_dict()
    with safe_open(source.discriminator / "model.safetensors", "pt") as file:
        for kind in ("word", "position"):
            exported_table = file.get_tensor(f"electra.embeddings.{kind}_embeddings.weight")
            own = state[f"discriminator_embeddings.{kind}_delta"]
            assert own.std() > 0.1
            expected = (state[f"embeddings.{kind}.weight"] + own)[: len(exported_table)]
            torch.testing.assert_close(exported_table, expected, atol=0, rtol=0)
    with safe_open(source.generator / "model.safetensors", "pt") as file:
        table = file.get_tensor("electra.embeddings.word_embeddings.weight")
        assert torch.equal(table, state["embeddings.word.weight"][: vocab.size])


@pytest.mark.parametrize("objective", ["hp_loss", "hp_dist"])
@pytest.mark.parametrize("network", ["discriminator", "generator"])
@torch.no_grad()
def test_the_sampling_head_stays_behind(exported, vocab, objective, network):
    source = exported(positions="both", objective=objective)
    assert any(name.startswith("sampling_head.") for name in source.model.state_dict())
    batch = rows_of([[make_example(20, vocab.size, seed=5)]], 20)
    theirs = load(source, network)(input_ids=batch.input_ids).logits
    assert_equal(trained_logits(source, network, batch), theirs)
    assert ("sampling head" in (source.generator / "README.md").read_text()) is True
    assert "sampling head" not in (source.discriminator / "README.md").read_text()


@torch.no_grad()
def test_masked_language_model_is_exported_alone_and_in_full_size(exported, vocab):
    source = exported(objective="mlm")
    assert [path.name for path in source.folder.iterdir()] == ["generator"]
    loaded = load(source, "generator")
    assert (loaded.config.hidden_size, loaded.config.num_hidden_layers) == (32, 2)
    batch = rows_of([[make_example(20, vocab.size, seed=6)]], 20)
    assert_equal(trained_logits(source, "generator", batch), loaded(input_ids=batch.input_ids).logits)
