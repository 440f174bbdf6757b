"""Export: a training checkpoint becomes folders that transformers loads strictly.

    OUTPUT/discriminator/   ElectraForPreTraining      OUTPUT/generator/   ElectraForMaskedLM
        model.safetensors  config.json  tokenizer files  README.md  [modeling_electra_rel.py]
    OUTPUT/export.json      which run and step this is

Everything is written beside OUTPUT under a temporary name and renamed at the end.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

import electra_ds
from electra_ds.config.errors import InputError
from electra_ds.config.schema import Config
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.hub.card import CardFacts, last_metrics, model_card
from electra_ds.hub.configs import MODELLING_FILE, write_config
from electra_ds.hub.kinds import OWN_FILE, export_kind
from electra_ds.hub.names import LayoutError, Tensors, networks_in, to_hugging_face
from electra_ds.hub.tokenizer_files import copy_tokenizer

MARKER = "export.json"
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
    elif (path / "config.json").is_file() or (path / MARKER).is_file():
        raise InputError(f"{path}: already an exported folder; give the run it was exported from")
    else:
        raise InputError(
            f"{path}: neither a run folder (no config.yaml) nor RUN/checkpoints/step-*; give one of the two"
        )
    match = _STEP.fullmatch(checkpoint.name)
    if match is None:
        raise InputError(f"{checkpoint}: no checkpoint name; expected step-NUMBER")
    return Source(run, checkpoint, int(match.group(1)))


def export(source: Path, output: Path, *, license: str = "unknown") -> list[Path]:
    """Export the newest whole checkpoint of a run, or the checkpoint given, to ``output``.

    Runs in one CPU process whatever wrote the checkpoint. Returns the folders written. Raises InputError for
    a source that is no run, an ``output`` that holds something else, or a run whose parts disagree.
    """
    from electra_ds.config.loading import load_frozen
    from electra_ds.training.weights import load_fp32_state

    found = resolve_source(source)
    config = load_frozen(found.run / "config.yaml")
    vocab, provenance, counts = _read_manifest(found.run / "manifest.json")
    facts = CardFacts(
        run=found.run.name,
        step=found.step,
        license=license,
        provenance=provenance,
        counts=counts,
        metrics=last_metrics(found.run / "metrics.jsonl", found.step),
    )
    check_output(output, run_identity(config, vocab, facts.run))  # before minutes of loading
    state = load_fp32_state(found.checkpoint)
    try:
        return export_state(state, config, vocab, found.run / "tokenizer", output, facts)
    except LayoutError as error:
        raise InputError(f"{found.checkpoint}: does not fit {found.run / 'config.yaml'}: {error}") from None


def export_state(
    state: Tensors, config: Config, vocab: Vocabulary, tokenizer_dir: Path, output: Path, card_facts: CardFacts
) -> list[Path]:
    """Write the networks of a joint model's state to ``output`` and return their folders.

    ``state`` holds full fp32 parameters by the joint model's names. The objective ``mlm`` has a generator
    only. Raises LayoutError where the state is not of that configuration.
    """
    identity = run_identity(config, vocab, card_facts.run)
    check_output(output, identity)
    output.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{output.name}.tmp-", dir=output.parent))
    try:
        networks = networks_in(state)
        if not networks:
            raise LayoutError("the checkpoint holds neither a discriminator nor a generator")
        for network in networks:
            folder = staging / network
            folder.mkdir()
            tensors = to_hugging_face(state, network, vocab.size)
            save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
            write_config(config, vocab, network, folder)
            copy_tokenizer(tokenizer_dir, folder, vocab, config.model.max_positions)
            if export_kind(config) == OWN_FILE:
                shutil.copyfile(Path(__file__).with_name(MODELLING_FILE), folder / MODELLING_FILE)
            card = model_card(network, config, card_facts)
            (folder / "README.md").write_text(card, encoding="utf-8")
        marker = {"format": 1, "step": card_facts.step, "electra_ds": electra_ds.__version__, **identity}
        (staging / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
        _readable_by_all(staging)
        _put_in_place(staging, output)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [output / network for network in networks]


def run_identity(config: Config, vocab: Vocabulary, run: str) -> dict[str, str]:
    """What tells one run from another: its name, and a digest of what can never change on resuming it."""
    fixed = {"seed": config.seed, "model": asdict(config.model), "objective": config.objective.name}
    content = json.dumps({**fixed, "tokenizer": vocab.sha256}, sort_keys=True)
    return {"run": run, "run_sha256": hashlib.sha256(content.encode()).hexdigest()}


def check_output(output: Path, identity: Mapping[str, str]) -> None:
    """Raise InputError unless ``output`` is free, empty, or an earlier export of the same run."""
    if output.is_file() or output.is_symlink():
        raise InputError(f"{output}: is a file or a link, not a folder; give another --output")
    if not output.exists() or not any(output.iterdir()):
        return
    try:
        marker = json.loads((output / MARKER).read_text(encoding="utf-8"))
        earlier = {key: marker[key] for key in identity}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{output}: exists and is no export; remove it or give another folder as --output"
        ) from None
    if earlier != dict(identity):
        raise InputError(
            f"{output}: holds an export of another run ({earlier['run']!r}); remove it or give another"
            " folder as --output"
        )
    known = {MARKER, "discriminator", "generator"}
    others = sorted(entry.name for entry in output.iterdir() if entry.name not in known)
    if others:
        raise InputError(
            f"{output}: holds {others[0]!r}, which an export would delete; move it away or give another"
            " folder as --output"
        )


def _put_in_place(staging: Path, output: Path) -> None:
    """Rename the finished folder; an earlier export is moved aside first and removed last."""
    if not output.exists():
        os.rename(staging, output)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{output.name}.old-", dir=output.parent))
    os.rename(output, aside / "export")
    try:
        os.rename(staging, output)
    except OSError:
        os.rename(aside / "export", output)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _readable_by_all(folder: Path) -> None:
    """Give the permissions that the umask allows: temporary folders and weight files start private."""
    umask = os.umask(0)
    os.umask(umask)
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def _read_manifest(path: Path) -> tuple[Vocabulary, dict[str, Any], dict[str, Any]]:
    """Vocabulary, provenance and counts from a run's copy of the manifest; the shards need not be there."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        vocab = Vocabulary(**content["tokenizer"])
        return vocab, dict(content.get("provenance", {})), dict(content.get("counts", {}))
    except OSError:
        raise InputError(
            f"{path}: missing; copy {path.name} of the shards that the run was trained on there"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: damaged ({error}); copy {path.name} of the shards that the run was trained on there"
        ) from None
