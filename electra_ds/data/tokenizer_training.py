"""Training a WordPiece vocabulary: the same text gives the same one, and memory is bounded by a sample.

The library's trainer numbers characters inside words in the order of a randomly seeded hash table, and breaks
ties between equally frequent pairs by those numbers, so two runs differ. Here a first pass finds the
characters, and the second is handed them in sorted order.
"""

import logging
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO, TYPE_CHECKING

from electra_ds.config.errors import InputError
from electra_ds.data.corpus import CorpusOptions, read_lines
from electra_ds.data.inputs import ReadCounts, Source
from electra_ds.data.tokenizer import MAX_WORD_CHARS, WordPieceSettings, wordpiece
from electra_ds.data.vocabulary import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_SAMPLE_BYTES = 1 << 28
MIN_VOCAB_SIZE = 64
_LONG_RUN = re.compile(rf"\w{{{MAX_WORD_CHARS + 1},}}")
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_PREFIX = "##"

log = logging.getLogger(__name__)


class _Sample:
    """The text a tokenizer is trained on, kept in a temporary file so that it can be read twice.

    Each source gives its share of the limit, from its beginning.
    """

    def __init__(
        self, sources: Sequence[Source], options: CorpusOptions, settings: WordPieceSettings, limit: int
    ) -> None:
        self.bytes = 0
        self.limited = False
        self.characters: Counter[str] = Counter()
        self._settings = settings
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the sample
        estimates = [source.text_estimate for source in sources]
        total = sum(estimates)
        counts = ReadCounts()
        for source, estimate in zip(sources, estimates, strict=True):
            share = limit if not total or not estimate else -(-limit * estimate // total)
            self._take(source, options, counts, min(share, limit - self.bytes))

    def _take(self, source: Source, options: CorpusOptions, counts: ReadCounts, quota: int) -> None:
        used = 0
        for piece in read_lines([source], options, counts):
            if piece is None or not piece.text.strip():
                continue
            if used >= quota:
                self.limited = True
                break
            text = piece.text
            used += len(text.encode())
            if self._settings.unicode_form != "none":
                text = unicodedata.normalize("NFC" if self._settings.unicode_form == "nfc" else "NFKC", text)
            self.characters.update(text)
            self._file.write(_LONG_RUN.sub(self._shorten, text).encode() + b"\n")
        self.bytes += used

    def _shorten(self, match: re.Match[str]) -> str:
        """Leave out words that WordPiece never cuts, which would only cost memory; ideographs are none."""
        return match.group() if self._settings.cjk and _CJK.search(match.group()) else " "

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        for line in self._file:
            yield line.decode()


def train_tokenizer(
    sources: Sequence[Source],
    options: CorpusOptions,
    settings: WordPieceSettings,
    vocab_size: int,
    sample_bytes: int = DEFAULT_SAMPLE_BYTES,
    allow_smaller: bool = False,
) -> "Tokenizer":
    """Train a WordPiece tokenizer of ``vocab_size`` tokens; [PAD] [UNK] [CLS] [SEP] [MASK] are 0 to 4.

    Raises InputError if there is no text, or too little for that many tokens; with ``allow_smaller`` such
    text gives fewer tokens and a warning.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise InputError(f"--vocab-size {vocab_size}: must be at least {MIN_VOCAB_SIZE}")
    if sample_bytes < 1:
        raise InputError(f"--sample-bytes {sample_bytes}: must be at least 1")
    with closing(_Sample(sources, options, settings, sample_bytes)) as sample:
        if not sample.bytes:
            names = ", ".join(source.name for source in sources[:3])
            raise InputError(f"{names}: no text to train a tokenizer on")
        limited = f" (a sample: --sample-bytes {sample_bytes})" if sample.limited else " (all of it)"
        log.info("training on %s bytes of text%s", f"{sample.bytes:,}", limited)
        vocabulary = _train_twice(sample, settings, vocab_size)
    if len(vocabulary) < vocab_size:
        given = f"the text gives {len(vocabulary)} tokens, fewer than --vocab-size {vocab_size}"
        if not allow_smaller:
            raise InputError(
                f"{given}; give more text, or say --vocab-size {len(vocabulary)}, or --allow-smaller"
            )
        log.warning("%s", given)
    return wordpiece(vocabulary, settings)


def _train_twice(sample: _Sample, settings: WordPieceSettings, vocab_size: int) -> dict[str, int]:
    found = _trained(sample, settings, len(SPECIAL_TOKENS) + 1, list(SPECIAL_TOKENS), None)
    singles = {token for token in found if token not in SPECIAL_TOKENS and _is_character(token)}
    # A character can stand at a word's beginning and inside one: two entries. A third of the vocabulary is
    # left for pieces, or a large alphabet alone would exceed the size asked for.
    alphabet = _most_frequent(singles, sample, settings, (vocab_size - len(SPECIAL_TOKENS)) // 3)
    inside = [_PREFIX + character for character in alphabet if _PREFIX + character in singles]
    return _trained(sample, settings, vocab_size, [*SPECIAL_TOKENS, *alphabet, *inside], alphabet)


def _is_character(token: str) -> bool:
    return len(token) == 1 or (len(token) == len(_PREFIX) + 1 and token.startswith(_PREFIX))


def _trained(
    sample: _Sample, settings: WordPieceSettings, size: int, first: list[str], alphabet: list[str] | None
) -> dict[str, int]:
    """Return a vocabulary of ``size`` that begins with ``first``; ``alphabet`` None takes every character."""
    from tokenizers import trainers

    tokenizer = wordpiece({}, settings)
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        show_progress=False,
        continuing_subword_prefix=_PREFIX,
        initial_alphabet=alphabet or [],
        limit_alphabet=sys.maxunicode if alphabet is None else len(alphabet),
    )
    tokenizer.train_from_iterator(iter(sample), trainer)
    return tokenizer.get_vocab()


def _most_frequent(singles: set[str], sample: _Sample, settings: WordPieceSettings, limit: int) -> list[str]:
    """Return the most frequent characters, sorted, and report how much of the text they cover."""
    normalizer = wordpiece({}, settings).normalizer
    counts: Counter[str] = Counter()
    for character, count in sample.characters.items():
        for normal in normalizer.normalize_str(character).strip():
            counts[normal] += count
    candidates = {single.removeprefix(_PREFIX) if len(single) > 1 else single for single in singles}
    kept = sorted(sorted(candidates), key=lambda character: -counts[character])[:limit]
    total = sum(counts.values())
    covered = sum(counts[character] for character in kept)
    if covered < total:
        log.log(
            logging.WARNING if covered < 0.999 * total else logging.INFO,
            "the vocabulary covers %.4f %% of the characters of the text; words with others become [UNK]",
            100 * covered / max(total, 1),
        )
    return sorted(kept)
