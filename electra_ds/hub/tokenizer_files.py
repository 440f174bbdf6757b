"""The tokenizer's files on their way into an exported folder."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from electra_ds.config.errors import InputError
from electra_ds.data.vocabulary import Vocabulary

COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)


def copy_tokenizer(source: Path, folder: Path, vocab: Vocabulary, max_length: int) -> None:
    """Copy the tokenizer's files and set ``model_max_length`` in its configuration.

    Only known names travel, so that nothing else that lies in the folder is published. Raises InputError
    where tokenizer.json is missing or is not the one that the shards were made with.
    """
    path = source / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{path}: missing; copy the tokenizer that the shards were made with into {source}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != vocab.sha256:
        raise InputError(
            f"{path}: not the tokenizer that the shards were made with; put that one into {source}"
        )
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    tokens = _tokens_by_id(path)
    if max(tokens, default=0) >= vocab.size:
        raise InputError(
            f"{path}: has the id {max(tokens)}, beyond the {vocab.size} entries of the model; put the"
            f" tokenizer that the shards were made with into {source}"
        )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **_special_tokens(tokens, vocab),
        **_given_config(source / "tokenizer_config.json"),
        "model_max_length": max_length,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _given_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); restore the file") from None


def _special_tokens(tokens: dict[int, str], vocab: Vocabulary) -> dict[str, str]:
    """What a configuration may leave open, from the vocabulary."""
    ids = {name: getattr(vocab, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")}
    return {f"{name}_token": tokens[number] for name, number in ids.items() if number in tokens}


def _tokens_by_id(path: Path) -> dict[int, str]:
    from tokenizers import Tokenizer

    try:
        loaded = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise InputError(f"{path}: not a tokenizer ({error}); restore the file") from None
    return {number: token for token, number in loaded.get_vocab(with_added_tokens=True).items()}
