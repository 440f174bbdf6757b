"""The manifest of a shard folder: what it holds, where it came from, and how to know that it is whole.

``manifest.json`` is written last. A folder without one was not finished, and is refused.
"""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from electra_ds.config.errors import InputError
from electra_ds.data.records import RecordError
from electra_ds.data.shards import Shard, verify_shard
from electra_ds.data.vocabulary import Vocabulary

MANIFEST_NAME = "manifest.json"
TOKENIZER_FOLDER = "tokenizer"
HELDOUT_FOLDER = "heldout"
FORMAT_VERSION = 1
_SPECIAL_NAMES = ("pad", "unk", "cls", "sep", "mask")
_SHARD_NAME = re.compile(r"[A-Za-z0-9_-]+\.tar")


@dataclass(frozen=True)
class Manifest:
    """A shard set. ``folder`` and ``sha256`` (of the file) are not stored in it."""

    folder: Path
    vocab: Vocabulary
    shards: tuple[Shard, ...]
    counts: dict[str, int]
    settings: dict[str, Any]  # how prepare read the text
    provenance: dict[str, Any]  # source, licence, date, filters, command
    sha256: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of the set, special tokens not included."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def tokenizer_folder(self) -> Path:
        """The copy of the tokenizer's files."""
        return self.folder / TOKENIZER_FOLDER


def write_manifest(manifest: Manifest) -> None:
    """Write ``manifest.json`` into the manifest's folder under its final name in one step."""
    content = {
        "format": FORMAT_VERSION,
        "provenance": manifest.provenance,
        "tokenizer": _vocabulary_entry(manifest.vocab),
        "counts": manifest.counts,
        "settings": manifest.settings,
        "shards": [{**asdict(shard), "records": shard.records} for shard in manifest.shards],
    }
    path = manifest.folder / MANIFEST_NAME
    temporary = path.with_name(MANIFEST_NAME + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _vocabulary_entry(vocab: Vocabulary) -> dict[str, Any]:
    ids = {name: getattr(vocab, f"{name}_id") for name in _SPECIAL_NAMES}
    return {"sha256": vocab.sha256, "vocab_size": vocab.size, "special_ids": ids}


def load_manifest(folder: Path | str, check: Literal["sizes", "checksums"] = "sizes") -> Manifest:
    """Load the manifest of a shard folder and check that its shards are there.

    ``sizes`` compares the size of every file; ``checksums`` reads every byte. Raises InputError naming what
    is missing, truncated or altered.
    """
    folder = Path(folder)
    path = folder / MANIFEST_NAME
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; make shards with 'electra-ds prepare --output {folder}'")
    if not path.is_file():
        raise InputError(
            f"{folder}: holds no {MANIFEST_NAME}, so it is no finished shard set;"
            " run 'electra-ds prepare' (again)"
        )
    raw = path.read_bytes()
    try:
        manifest = _parse(folder, json.loads(raw), hashlib.sha256(raw).hexdigest())
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: damaged manifest ({reason}); restore it or prepare again") from None
    _check_files(manifest)
    _check_tokenizer(manifest)
    if check == "checksums":
        for shard in manifest.shards:
            try:
                verify_shard(folder / shard.name, shard)
            except RecordError as error:
                raise InputError(f"{folder / shard.name}: {error}; restore it or prepare again") from None
    return manifest


def _parse(folder: Path, content: dict[str, Any], digest: str) -> Manifest:
    version = content["format"]
    if version != FORMAT_VERSION:
        raise InputError(
            f"{folder / MANIFEST_NAME}: format version {version!r}, but this release reads {FORMAT_VERSION};"
            " prepare the shards again or use the release that made them"
        )
    entry = content["tokenizer"]
    ids = {f"{name}_id": int(entry["special_ids"][name]) for name in _SPECIAL_NAMES}
    vocab = Vocabulary(size=int(entry["vocab_size"]), sha256=str(entry["sha256"]), **ids)
    if len(set(ids.values())) < len(ids) or not all(0 <= number < vocab.size for number in ids.values()):
        raise ValueError("the special ids are not five different ids of the vocabulary")
    shards = []
    for entry in content["shards"]:
        fields = {name: value for name, value in entry.items() if name != "records"}
        for name in ("blocks", "block_bytes", "block_crc32"):
            fields[name] = tuple(int(value) for value in fields[name])
        shard = Shard(**fields)
        if not _SHARD_NAME.fullmatch(shard.name):
            raise ValueError(f"{shard.name!r} is no shard name")
        lengths = {entry["records"], len(shard.blocks), len(shard.block_bytes), len(shard.block_crc32)}
        if len(lengths) != 1 or shard.tokens != sum(shard.blocks) or min(shard.blocks, default=0) < 1:
            raise ValueError(f"the counts of {shard.name} contradict each other")
        shards.append(shard)
    counts = {name: int(value) for name, value in content["counts"].items()}
    if not shards or counts["tokens"] != sum(shard.tokens for shard in shards):
        raise ValueError("the token counts contradict each other")
    return Manifest(
        folder, vocab, tuple(shards), counts, dict(content["settings"]), dict(content["provenance"]), digest
    )


def _check_tokenizer(manifest: Manifest) -> None:
    file = manifest.tokenizer_folder / "tokenizer.json"
    if not file.is_file():
        raise InputError(f"{file}: missing; restore the tokenizer's folder or prepare again")
    if hashlib.sha256(file.read_bytes()).hexdigest() != manifest.vocab.sha256:
        raise InputError(
            f"{file}: is not the tokenizer that made these shards (its sha256 differs); restore it"
        )


def _check_files(manifest: Manifest) -> None:
    missing = [shard.name for shard in manifest.shards if not (manifest.folder / shard.name).is_file()]
    if missing:
        listed = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise InputError(f"{manifest.folder}: missing {listed}; restore them or prepare again")
    for shard in manifest.shards:
        size = (manifest.folder / shard.name).stat().st_size
        if size != shard.bytes:
            raise InputError(
                f"{manifest.folder / shard.name}: {size} bytes, but the manifest says {shard.bytes};"
                " the shard is truncated or altered, restore it or prepare again"
            )
