"""Slots, labels, packing, and what a batch may look like without changing or breaking the result."""

from dataclasses import replace

import pytest
import torch

from electra_ds.data.batch import Batch
from electra_ds.model.build import build_model
from electra_ds.model.context import StepContext
from electra_ds.model.objectives import OBJECTIVES
from electra_ds.model.slots import Slots

ALL = sorted(OBJECTIVES)


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def step(model, batch, context):
    model.zero_grad()
    out = model(batch, context)
    out.loss.backward()
    return out, gradients(model)


def close(found, expected, tolerance=3e-6):
    """Compare gradients, each relative to the largest entry of its tensor."""
    assert found.keys() == expected.keys()
    for name, reference in expected.items():
        scale = reference.abs().max().clamp(min=1e-3)
        assert (found[name] - reference).abs().max() <= tolerance * scale, name


def test_slots_put_and_gather(batch):
    rows = batch(slots=4, used=2)
    slots = Slots.of(rows)
    words = torch.arange(16) + 40
    filled = slots.put(words)
    assert torch.equal(filled[:, 0], rows.input_ids[:, 0])
    for row in range(4):
        for slot in range(2):
            assert filled[row, rows.masked_positions[row, slot]] == words[row * 4 + slot]
    assert (filled != rows.input_ids).sum() <= 8
    assert torch.equal(slots.is_masked().sum(1), torch.full((4,), 2))
    assert torch.equal(slots.gather(rows.input_ids), slots.targets)


def test_a_masked_first_position_survives_the_unused_slots_that_point_there(batch):
    rows = batch(slots=3, used=1)
    rows.masked_positions[:, 0] = 0
    slots = Slots.of(rows)
    assert (slots.put(4)[:, 0] == 4).all()
    assert torch.equal(slots.put(4)[:, 1:], rows.input_ids[:, 1:])


@pytest.mark.parametrize("name", ALL)
def test_unused_slots_leave_no_trace(name, config, vocab, batch, context):
    model = build_model(config(name), vocab)
    some = batch(slots=2)
    unused = torch.zeros(4, 3)
    more = replace(
        some,
        masked_positions=torch.cat([some.masked_positions, unused.long()], 1),
        masked_weights=torch.cat([some.masked_weights, unused], 1),
        draws=torch.cat([some.draws, unused + 0.7], 1),
    )
    out, expected = step(model, some, context(some))
    again, found = step(model, more, context(more))
    torch.testing.assert_close(again.loss, out.loss)
    close(found, expected)
    for key, value in out.sums.items():
        torch.testing.assert_close(again.sums[key], value)


def test_a_replacement_that_equals_the_original_counts_as_original(config, vocab, batch):
    rows = batch()
    slots = Slots.of(rows)
    words = slots.targets.clone()
    words[:5] = (words[:5] - 5 + 1) % 65 + 5  # five real replacements
    detection = build_model(config("electra"), vocab).detect(rows, slots, words)
    assert detection.sums["replaced"] == 5
    other = build_model(config("electra", objective__correct_is="replaced"), vocab)
    assert other.detect(rows, slots, words).sums["replaced"] == rows.num_masked


def two_examples_a_row() -> tuple[Batch, Batch]:
    """Return rows of two examples (7 and 6 tokens) and 3 tokens of padding, and the same examples apart."""
    rng = torch.Generator().manual_seed(5)
    ids = torch.randint(5, 70, (2, 16), generator=rng)
    segments = torch.tensor([1] * 7 + [2] * 6 + [0] * 3).repeat(2, 1)
    place = torch.cat([torch.arange(7), torch.arange(6), torch.zeros(3, dtype=torch.long)]).repeat(2, 1)
    types = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0]).repeat(2, 1)
    ids[segments == 0] = 0
    positions = torch.tensor([[2, 5, 9, 11], [1, 3, 8, 12]])
    draws = torch.rand(2, 4, generator=rng)
    packed = Batch(ids, segments, place, types, positions, torch.ones(2, 4), draws, True, 26, 8)

    def apart(values: torch.Tensor) -> torch.Tensor:
        first, second = values[:, :7], torch.cat([values[:, 7:13], values.new_zeros(2, 1)], 1)
        return torch.stack([first, second], 1).flatten(0, 1)

    separate = Batch(
        input_ids=apart(ids),
        segments=(apart(segments) > 0).long(),
        position_ids=apart(place),
        token_type_ids=apart(types),
        masked_positions=torch.tensor([[2, 5], [2, 4], [1, 3], [1, 5]]),
        masked_weights=torch.ones(4, 2),
        draws=draws.view(4, 2),
        needs_mask=True,
        num_tokens=26,
        num_masked=8,
    )
    return packed, separate


@pytest.mark.parametrize("positions", ["absolute", "relative", "both"])
@pytest.mark.parametrize("name", ["mlm", "hp_loss", "hp_dist"])
def test_packed_rows_equal_the_separate_examples(name, positions, config, vocab, context):
    settings = {"model__positions": positions, "model__relative_init": "local"}
    model = build_model(config(name, **settings), vocab)
    packed, separate = two_examples_a_row()
    out, found = step(model, packed, context(packed))
    reference, expected = step(model, separate, context(separate))
    torch.testing.assert_close(out.loss, reference.loss)
    close(found, expected, 1e-5)


def test_attention_would_cross_the_border_without_the_mask(config, vocab, context):
    model = build_model(config("mlm"), vocab)
    packed, _ = two_examples_a_row()
    inside = model(packed, context(packed)).loss
    across = model(replace(packed, needs_mask=False), context(packed)).loss
    assert abs(inside - across) > 1e-4


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("importance", [False, True])
def test_unequal_micro_batches_sum_to_the_whole_batch(name, importance, config, vocab, batch):
    extra = {"objective__importance_weighting": importance} if name.startswith("hp_") else {}
    settings = {"objective__hp__head": "independent", "objective__focal_gamma": 1.0} | extra
    model = build_model(config(name, **settings), vocab)
    whole = batch(rows=5, slots=4, used=4)
    whole.masked_weights[0, 1:] = 0  # one masked position here, four elsewhere
    whole.masked_positions[0, 1:] = 0
    whole.segments[1, 9:] = 0
    whole.masked_positions[1] = torch.tensor([1, 3, 4, 7])
    whole.needs_mask = True
    counts = {"num_masked": whole.masked_weights.sum(), "num_tokens": (whole.segments > 0).sum()}
    context = StepContext(0, carried={"hp_z": torch.tensor(0.8), "hp_weight": torch.tensor(0.9)}, **counts)
    out, expected = step(model, whole, context)
    model.zero_grad()
    tensors = {key: value for key, value in vars(whole).items() if isinstance(value, torch.Tensor)}
    parts = [
        model(replace(whole, **{key: value[rows] for key, value in tensors.items()}), context)
        for rows in (slice(0, 2), slice(2, 5))
    ]
    sum(part.loss for part in parts).backward()
    torch.testing.assert_close(sum(part.loss for part in parts), out.loss)
    close(gradients(model), expected)
    total = {key: parts[0].sums[key] + parts[1].sums[key] for key in out.sums}
    assert model.tags(total) == pytest.approx(model.tags(out.sums), rel=1e-5, abs=1e-7)


def edge_batch(kind: str, batch) -> Batch:
    rows = batch(slots=3)
    if kind == "nothing masked":
        rows = batch(slots=3, used=0)
    elif kind == "only padding":
        rows = batch(slots=3, used=0)
        rows.input_ids.zero_()
        rows.segments.zero_()
        rows.num_tokens, rows.needs_mask = 0, True
    elif kind == "one maskable token":
        rows.input_ids[:, 3:], rows.segments[:, 3:] = 0, 0
        rows.masked_positions[:] = torch.tensor([1, 0, 0])
        rows.masked_weights[:, 1:] = 0
        rows.needs_mask, rows.num_tokens, rows.num_masked = True, 12, 4
    elif kind == "all unknown":
        rows.input_ids[:, 1:-1] = 1
    elif kind == "draws at the edge":
        rows.draws[:] = 1 - 2**-24
    return rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("saturated", [False, True])
@pytest.mark.parametrize(
    "kind", ["nothing masked", "only padding", "one maskable token", "all unknown", "draws at the edge"]
)
@pytest.mark.parametrize("name", ALL)
def test_everything_is_finite(name, kind, saturated, dtype, config, vocab, batch, context):
    settings = {"objective__focal_gamma": 0.5, "model__positions": "both", "objective__hp__head": "copy"}
    model = build_model(config(name, **settings), vocab).to(dtype)
    if saturated:
        with torch.no_grad():
            for head in ("mlm_head", "sampling_head", "rtd_head"):
                for parameter in getattr(model, head, torch.nn.Module()).parameters():
                    parameter.mul_(300)
    rows = edge_batch(kind, batch)
    out, found = step(model, rows, context(rows))
    assert out.loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in found.values())
    assert all(value.isfinite().all() for value in out.sums.values())
    assert all(value == value for value in model.tags(out.sums).values())
    assert all(value.isfinite() and value > 0 for value in model.carry(out.sums).values())
    if kind in ("nothing masked", "only padding"):
        assert out.sums["loss_mlm"] == 0
    if kind == "only padding":
        assert out.loss == 0


@pytest.mark.parametrize("name", ALL)
def test_a_step_never_waits_for_the_device(name, config, vocab, batch, context):
    """On the meta device there are no values: whatever needs one on the host would raise."""
    settings = {"model__positions": "both", "model__embedding_sharing": "gdes", "model__dropout": 0.1}
    settings |= {"objective__sample_with_dropout": False, "objective__temperature": 0.9}
    model = build_model(config(name, **settings), vocab).to("meta")
    rows = batch().to("meta")
    rows.needs_mask = True
    out = model(rows, context(rows))
    out.loss.backward()
    assert model.carry({key: value.clone() for key, value in out.sums.items()}).keys() == (
        model.initial_carry().keys()
    )
