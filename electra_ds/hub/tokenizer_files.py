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
    config = _tokenizer_config(folder / "tokenizer_config.json", path, vocab)
    config["model_max_length"] = max_length
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _tokenizer_config(path: Path, tokenizer: Path, vocab: Vocabulary) -> dict[str, Any]:
    """The given configuration, with what it leaves open taken from the vocabulary."""
    given = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    tokens = _tokens_by_id(tokenizer)
    special = {
        f"{name}_token": tokens[index]
        for name, index in (
            ("pad", vocab.pad_id),
            ("unk", vocab.unk_id),
            ("cls", vocab.cls_id),
            ("sep", vocab.sep_id),
            ("mask", vocab.mask_id),
        )
        if index in tokens
    }
    return {"tokenizer_class": "PreTrainedTokenizerFast", **special, **given}


def _tokens_by_id(path: Path) -> dict[int, str]:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(path))
    return {index: token for token, index in loaded.get_vocab(with_added_tokens=True).items()}
