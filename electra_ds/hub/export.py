"""Export: a training checkpoint becomes folders that transformers loads strictly.

    OUTPUT/discriminator/   ElectraForPreTraining      OUTPUT/generator/   ElectraForMaskedLM
        model.safetensors  config.json  tokenizer files  README.md  [modeling_electra_rel.py]

Everything is written beside OUTPUT under a temporary name and renamed at the end.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.config.schema import Config
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.hub.card import CardFacts, last_metrics, model_card
from electra_ds.hub.configs import MODELLING_FILE, expected_shapes, hub_config
from electra_ds.hub.kinds import OWN_FILE, export_kind
from electra_ds.hub.names import LayoutError, Tensors, networks_in, to_hugging_face
from electra_ds.hub.tokenizer_files import copy_tokenizer

if TYPE_CHECKING:
    from electra_ds.hub.names import Network

WEIGHTS = "model.safetensors"
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Source:
    """A checkpoint and the run it belongs to."""

    run: Path
    checkpoint: Path
    step: int


def resolve_source(path: Path) -> Source:
    """Find run and checkpoint from a run folder (its newest whole checkpoint) or a checkpoint folder.

    Raises InputError for a folder that is neither.
    """
    from electra_ds.training.checkpoint import newest_whole

    path = path.resolve()
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give a run folder or one of its checkpoints/step-*")
    if (path / "config.yaml").is_file():
        run, checkpoint = path, newest_whole(path)
    elif _STEP.fullmatch(path.name) and (path.parent.parent / "config.yaml").is_file():
        run, checkpoint = path.parent.parent, path
    elif any((path / name / "config.json").is_file() for name in (".", "discriminator", "generator")):
        raise InputError(f"{path}: already an exported folder; give the run it was exported from")
    else:
        raise InputError(
            f"{path}: neither a run folder (no config.yaml) nor RUN/checkpoints/step-*; give one of the two"
        )
    match = _STEP.fullmatch(checkpoint.name)
    if match is None:
        raise InputError(f"{checkpoint}: no checkpoint's name; expected step-NUMBER")
    return Source(run, checkpoint, int(match.group(1)))


def export(source: Path, output: Path, *, license: str = "unknown") -> list[Path]:
    """Export the newest whole checkpoint of a run, or the checkpoint given, to ``output``.

    Runs in one CPU process whatever wrote the checkpoint. Returns the folders written. Raises InputError for
    a source that is no run, an ``output`` that holds something, or a run whose parts disagree.
    """
    from electra_ds.config.loading import load_frozen
    from electra_ds.training.weights import load_fp32_state

    found = resolve_source(source)
    config = load_frozen(found.run / "config.yaml")
    manifest = found.run / "manifest.json"
    vocab, provenance, counts = read_manifest_copy(manifest)
    facts = CardFacts(
        run=found.run.name,
        step=found.step,
        license=license,
        provenance=provenance,
        counts=counts,
        metrics=last_metrics(found.run / "metrics.jsonl", found.step),
    )
    _free(output)  # before minutes of loading
    state = load_fp32_state(found.checkpoint)
    try:
        return export_state(state, config, vocab, found.run / "tokenizer", output, facts)
    except LayoutError as error:
        raise InputError(
            f"{found.checkpoint}: does not fit {found.run / 'config.yaml'} and {manifest}: {error};"
            " give a run whose files belong together"
        ) from None


def export_state(
    state: Tensors, config: Config, vocab: Vocabulary, tokenizer_dir: Path, output: Path, facts: CardFacts
) -> list[Path]:
    """Write the networks of a joint model's state to ``output`` and return their folders.

    ``state`` holds full fp32 parameters by the joint model's names. The objective ``mlm`` has a generator
    only. Raises LayoutError where the state is not of that configuration, InputError where ``output`` holds
    something already or the tokenizer is another one; nothing is left under ``output`` then.
    """
    networks = networks_in(state)
    if not networks:
        raise LayoutError("it holds neither a discriminator nor a generator")
    output = _free(output)
    with _staging_for(output) as staging:
        for network in networks:
            folder = staging / network
            folder.mkdir()
            _write_network(state, config, vocab, network, folder)
            copy_tokenizer(tokenizer_dir, folder, vocab, config.model.max_positions)
            card = model_card(network, config, facts)
            (folder / "README.md").write_text(card, encoding="utf-8")
        _readable_by_all(staging)
        os.rename(staging, output)
    return [output / network for network in networks]


def _write_network(
    state: Tensors, config: Config, vocab: Vocabulary, network: "Network", folder: Path
) -> None:
    settings = hub_config(config, vocab, network)
    tensors = to_hugging_face(state, network, vocab.size)
    expected = expected_shapes(settings, network)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise LayoutError(
                f"the {network}'s {name} is {found.get(name, 'missing')},"
                f" expected {expected.get(name, 'no such tensor')}"
            )
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    settings.save_pretrained(folder)
    if export_kind(config) == OWN_FILE:
        shutil.copyfile(Path(__file__).with_name(MODELLING_FILE), folder / MODELLING_FILE)


def _free(output: Path) -> Path:
    """Return ``output`` with links resolved. Raises InputError unless it is absent or an empty folder."""
    output = output.resolve()
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file; give another folder as --output")
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: is not empty; remove it or give another folder as --output")
    return output


@contextmanager
def _staging_for(output: Path) -> Iterator[Path]:
    """A temporary folder on the same file system, removed unless it was renamed; failures to write it."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{output.name}.tmp-", dir=output.parent))
    except OSError as error:
        raise InputError(f"{output}: cannot be made ({error.strerror}); give another --output") from None
    try:
        yield staging
    except (OSError, SafetensorError) as error:
        raise RunFailure(f"{output}: writing the export failed ({error}); nothing was kept") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _readable_by_all(folder: Path) -> None:
    """Give the permissions that the umask allows: temporary folders and weight files start private."""
    umask = os.umask(0)
    os.umask(umask)
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def read_manifest_copy(path: Path) -> tuple[Vocabulary, dict[str, Any], dict[str, Any]]:
    """Return vocabulary, provenance and counts from a run's copy of the manifest; no shard need be there.

    Raises InputError where the file is missing or damaged.
    """
    remedy = "copy manifest.json of the shards that the run was trained on there"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entry = content["tokenizer"]
        ids = {f"{name}_id": int(number) for name, number in entry["special_ids"].items()}
        vocab = Vocabulary(size=int(entry["vocab_size"]), sha256=str(entry["sha256"]), **ids)
        return vocab, dict(content.get("provenance", {})), dict(content.get("counts", {}))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged ({type(error).__name__}: {error}); {remedy}") from None
