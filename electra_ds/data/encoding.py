"""Loading a tokenizer and turning sentences into ids and word starts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_ds.config.errors import InputError
from electra_ds.data.vocabulary import SPECIAL_TOKENS, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


@dataclass(frozen=True)
class TextEncoder:
    """A tokenizer set for raw text: no truncation, no padding, special tokens in the text are plain text."""

    tokenizer: "Tokenizer"
    vocab: Vocabulary
    files: dict[str, bytes]  # what a copy of the tokenizer's folder holds
    continues: np.ndarray | None  # (size,) bool, WordPiece only: the token goes on with a word

    def encode(self, sentences: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return for each sentence its ids (n,) uint32 and word starts (n,) bool; n may be 0."""
        if self.continues is not None:  # the fast call leaves the word ids out
            fast = self.tokenizer.encode_batch_fast(list(sentences), add_special_tokens=False)
            arrays = (np.array(encoding.ids, dtype=np.uint32) for encoding in fast)
            return [(ids, ~self.continues[ids]) for ids in arrays]
        result = []
        for encoding in self.tokenizer.encode_batch(list(sentences), add_special_tokens=False):
            words = np.array(encoding.word_ids, dtype=np.float64)  # None, for no word, becomes nan
            starts = np.ones(len(words), dtype=bool)
            starts[1:] = words[1:] != words[:-1]
            result.append((np.array(encoding.ids, dtype=np.uint32), starts))
        return result


def load_encoder(path: Path | str) -> TextEncoder:
    """Load a folder with ``tokenizer.json`` (any Hugging Face fast tokenizer), or with a ``vocab.txt``, or
    that file.

    A ``vocab.txt`` alone is taken for an uncased WordPiece vocabulary; a ``tokenizer_config.json`` beside it
    is obeyed. Raises InputError if the five special tokens are not all there, once each.
    """
    from tokenizers import Tokenizer

    path = Path(path)
    if path.is_file() and path.name.endswith(".txt"):
        return _from_vocabulary(path, {})
    folder = path.parent if path.name == "tokenizer.json" else path
    config = _json_object(folder / "tokenizer_config.json")
    file = folder / "tokenizer.json"
    if not file.is_file():
        if (folder / "vocab.txt").is_file():
            return _from_vocabulary(folder / "vocab.txt", config)
        raise InputError(f"{path}: no tokenizer.json and no vocab.txt; make one with 'electra-ds tokenizer'")
    raw = file.read_bytes()
    try:
        tokenizer = Tokenizer.from_str(raw.decode("utf-8"))
    except Exception as error:  # the library raises plain Exception for a file it cannot parse
        raise InputError(f"{file}: not a tokenizer of the Hugging Face library ({error})") from None
    files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
    named = {**config, **_json_object(folder / "special_tokens_map.json")}
    return _encoder(tokenizer, named, files, file)


def _json_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    return content if isinstance(content, dict) else {}


def _encoder(
    tokenizer: "Tokenizer", named: dict[str, Any], files: dict[str, bytes], where: Path
) -> TextEncoder:
    tokenizer.no_truncation()  # a saved limit would drop text without a word
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a literal "[SEP]" in text is text
    ids: dict[str, int] = {}
    for role, default in zip(_ROLES, SPECIAL_TOKENS, strict=True):
        token = named.get(role) or default
        token = token["content"] if isinstance(token, dict) else str(token)
        number = tokenizer.token_to_id(token)
        if number is None:
            raise InputError(f"{where}: has no {role} ({token!r}); all of {', '.join(_ROLES)} are needed")
        ids[role.replace("_token", "_id")] = number
    if len(set(ids.values())) != len(ids):
        raise InputError(f"{where}: two of {', '.join(_ROLES)} are the same token")
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values()) + 1
    continues = None
    if type(tokenizer.model).__name__ == "WordPiece":
        prefix = tokenizer.model.continuing_subword_prefix
        continues = np.zeros(size, dtype=bool)
        continues[[number for token, number in vocabulary.items() if token.startswith(prefix)]] = True
    digest = hashlib.sha256(files["tokenizer.json"]).hexdigest()
    return TextEncoder(tokenizer, Vocabulary(size=size, sha256=digest, **ids), files, continues)


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a ``vocab.txt``: one token a line, the line's number is its id. Raises InputError naming the
    line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte offset {error.start}") from None
    tokens: dict[str, int] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n")):
        token = line.removesuffix("\r")
        if token in tokens:
            raise InputError(f"{path}: line {number + 1} repeats {token!r} of line {tokens[token] + 1}")
        tokens[token] = number
    return tokens


def _from_vocabulary(path: Path, config: dict[str, Any]) -> TextEncoder:
    from electra_ds.data.tokenizer import WordPieceSettings, tokenizer_files, wordpiece

    vocabulary = read_vocabulary(path)
    missing = [token for token in SPECIAL_TOKENS if token not in vocabulary]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}; all of {', '.join(SPECIAL_TOKENS)} are needed")
    settings = WordPieceSettings(
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        cjk=bool(config.get("tokenize_chinese_chars", True)),
        unicode_form="none",
    )
    tokenizer = wordpiece(vocabulary, settings)
    return _encoder(tokenizer, {}, tokenizer_files(tokenizer, settings), path)
