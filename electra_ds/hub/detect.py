"""Which words of a sentence does a discriminator distrust?

The folder is data: its tokenizer, config.json and safetensors are read, and a modelling file or a pickle that
lies beside them is never opened.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Encoding

from electra_ds.config.errors import InputError
from electra_ds.hub.discriminator import load_discriminator


@dataclass(frozen=True)
class Word:
    """A word of a sentence: its place in the text, and the probability that it was replaced."""

    word: str
    start: int  # characters of the text
    end: int
    replaced: float


@dataclass(frozen=True)
class Detection:
    """What the discriminator says of one sentence."""

    text: str
    words: tuple[Word, ...]
    truncated: bool  # the words after the last one did not fit

    @property
    def most_distrusted(self) -> Word | None:
        """The first of the words with the highest probability; None where there is no word."""
        return max(self.words, key=lambda word: word.replaced, default=None)

    def as_record(self) -> dict[str, Any]:
        """The JSON object of ``detect --json``; ``most_distrusted`` is a word of the sentence or null."""
        top = self.most_distrusted
        return {
            "text": self.text,
            "words": [vars(word) for word in self.words],
            "most_distrusted": None if top is None else top.word,
        }


class Detector:
    """A discriminator with its tokenizer, on the CPU."""

    def __init__(self, folder: Path) -> None:
        """Load a discriminator's folder. Raises InputError saying what to pass instead."""
        self.model = load_discriminator(folder)
        self.tokenizer = self.model.tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.model.max_length)

    def detect(self, texts: Iterable[str]) -> Iterator[Detection]:
        """Yield one detection per text, in order. Raises InputError where tokenizer and model disagree."""
        for text in texts:
            encoding = self.tokenizer.encode(text)
            if max(encoding.ids, default=0) >= self.model.vocab_size:
                raise InputError(
                    f"{self.model.path}: its tokenizer gives id {max(encoding.ids)}, but the model has"
                    f" {self.model.vocab_size} entries; put the model's own tokenizer there"
                )
            ids = torch.tensor([encoding.ids])
            types = torch.tensor([encoding.type_ids])
            probabilities = self.model.probabilities(ids, types)[0].tolist()
            yield Detection(text, _words(text, encoding, probabilities), bool(encoding.overflowing))


def _words(text: str, encoding: Encoding, probabilities: list[float]) -> tuple[Word, ...]:
    """Join tokens of the same word: the span they cover, and the highest of their probabilities."""
    joined: dict[int, list[tuple[int, int, float]]] = {}
    for word_id, (start, end), probability in zip(
        encoding.word_ids, encoding.offsets, probabilities, strict=True
    ):
        if word_id is not None:
            joined.setdefault(word_id, []).append((start, end, probability))
    words = []
    for pieces in joined.values():
        start, end = min(piece[0] for piece in pieces), max(piece[1] for piece in pieces)
        word = text[start:end]
        start += len(word) - len(word.lstrip())  # byte-level tokenizers count the blank before a word to it
        words.append(Word(word.strip(), start, start + len(word.strip()), max(piece[2] for piece in pieces)))
    return tuple(words)
