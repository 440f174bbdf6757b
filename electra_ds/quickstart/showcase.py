"""What the discriminator has learned, shown on held-out sentences in which one word was changed.

Sentences, places and new words are drawn by hashes, before any score is known. A single example can be lucky,
so it stands beside the count over all of them.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from electra_ds.data.sentences import split_sentences
from electra_ds.quickstart.prose import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from electra_ds.hub.detect import Detection

MIN_WORDS, MAX_WORDS = 7, 16
MAX_SENTENCES = 200
FREQUENT = 300  # words that are changed, and that they are changed to
_READ_CHUNKS = 20  # megabytes of the training text; enough to know the frequent words
_PLAIN_SENTENCE = re.compile(r"[A-Z][a-z]*(?: [a-z]+)+[.]")
_WORD = re.compile(r"\b[a-z]{4,}\b")
_BAR = 20  # characters of a probability of one


class SupportsDetect(Protocol):
    """What of ``hub.detect.Detector`` is used here."""

    def detect(self, texts: "Iterable[str]") -> "Iterator[Detection]":
        """Yield a detection per text."""


@dataclass(frozen=True)
class Change:
    """A sentence and the same with its ``place``-th word (from 0) replaced."""

    before: str
    after: str
    place: int
    old: str
    new: str


@dataclass(frozen=True)
class Shown:
    """Scores of both versions of a sentence: probabilities that a word was replaced, word by word."""

    change: Change
    before: "Detection"
    after: "Detection"

    @property
    def found(self) -> bool:
        """Whether the changed word is the most distrusted one."""
        return max(self.after.words, key=lambda word: word.replaced) is self.after.words[self.change.place]

    @property
    def rise(self) -> float:
        """By how much the distrust of that word rose."""
        place = self.change.place
        return self.after.words[place].replaced - self.before.words[place].replaced


def _draw(key: str, below: int) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") % below


def frequent_words(train: Path) -> list[str]:
    """Return the most frequent words of four letters and more that are no stop words, most frequent first."""
    counts: Counter[str] = Counter()
    with train.open(encoding="utf-8") as file:
        for _ in range(_READ_CHUNKS):
            counts.update(_WORD.findall("".join(file.readlines(1 << 20))))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return [word for word in ranked if word not in STOP_WORDS][:FREQUENT]


def plan_changes(held_out: Path, words: list[str]) -> list[Change]:
    """Draw a word to change and its successor for plain held-out sentences, at most ``MAX_SENTENCES``."""
    known = frozenset(words)
    sentences: dict[str, None] = {}
    with held_out.open(encoding="utf-8") as file:
        for line in file:
            for sentence in split_sentences(line):
                plain = _PLAIN_SENTENCE.fullmatch(sentence)
                if plain and MIN_WORDS <= len(sentence.split()) <= MAX_WORDS:
                    sentences[sentence] = None
    ordered = sorted(sentences, key=lambda sentence: _draw(sentence, 1 << 63))
    changes = (_change(sentence, words, known) for sentence in ordered)
    return [change for change in changes if change is not None][:MAX_SENTENCES]


def _change(sentence: str, words: list[str], known: frozenset[str]) -> Change | None:
    split = sentence.removesuffix(".").split()
    places = [place for place in range(1, len(split)) if split[place] in known]
    if not places:
        return None
    place = places[_draw("place " + sentence, len(places))]
    old = split[place]
    others = [word for word in words if word not in split and word[:4] != old[:4]]
    new = others[_draw("word " + sentence, len(others))]
    after = " ".join([*split[:place], new, *split[place + 1 :]]) + "."
    return Change(sentence, after, place, old, new)


def show_all(detector: SupportsDetect, changes: list[Change]) -> list[Shown]:
    """Score both versions of every sentence; those whose words the tokenizer cuts otherwise are left out."""
    before = detector.detect(change.before for change in changes)
    after = detector.detect(change.after for change in changes)
    shown = [Shown(*scored) for scored in zip(changes, before, after, strict=True)]
    return [
        each
        for each in shown
        if len(each.before.words) == len(each.after.words)
        and each.after.words[each.change.place].word.lower() == each.change.new
    ]


def report(shown: list[Shown]) -> list[str]:
    """Lines to print: the count over all sentences, and the one in which the change is noticed most."""
    if not shown:
        return ["The held-out text has no plain sentence to change a word in."]
    best = max(shown, key=lambda each: (each.found, each.rise))
    found = sum(each.found for each in shown)
    guess = sum(1 / len(each.after.words) for each in shown) / len(shown)
    rose = sum(each.rise for each in shown) / len(shown)
    change = best.change
    lines = [
        f"In each of {len(shown)} held-out sentences one word was changed. The discriminator distrusts that",
        f"word most in {found} of them ({found / len(shown):.0%}; guessing: {guess:.0%}); its probability of"
        f" being replaced rose by {rose:.3f} on average.",
        "The sentence in which it rose most:",
        f"  before: {change.before}",
        f"  after:  {change.after}",
        "",
        f"  {'word':<16} {'before':>6} {'after':>6}   probability that it was replaced",
    ]
    top = max(best.after.words, key=lambda word: word.replaced)
    for place, (old, new) in enumerate(zip(best.before.words, best.after.words, strict=True)):
        marks = [
            mark
            for mark, here in (("changed", place == change.place), ("most distrusted", new is top))
            if here
        ]
        arrow = f"  <- {', '.join(marks)}" if marks else ""
        bar = "#" * round(_BAR * new.replaced)
        scores = f"{old.replaced:6.3f} {new.replaced:6.3f}"
        lines.append(f"  {new.word:<16} {scores}   {bar:<{_BAR}}{arrow}".rstrip())
    return lines
