"""Detections as text: a line per word, coloured on a terminal."""

import os
from typing import TextIO

from electra_ds.hub.detect import Detection

RED, YELLOW, BOLD, RESET = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
DISTRUSTED = 0.5  # more likely replaced than not
DOUBTED = 0.2
BAR = 20  # characters of a probability of one


def wants_colour(stream: TextIO) -> bool:
    """Colour is for terminals, and not where NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def render(detection: Detection, colour: bool) -> str:
    """Return the sentence and its words with their probabilities; the most distrusted one is marked."""
    top = detection.most_distrusted
    if top is None:
        return f"{detection.text}\n  (no words)"
    width = max(len(word.word) for word in detection.words)
    lines = [detection.text]
    for word in detection.words:
        bar = "#" * round(BAR * word.replaced)
        mark = "<- most distrusted" if word is top else ""
        line = f"  {word.word:{width}}  {word.replaced:.3f}  {bar:{BAR}}  {mark}".rstrip()
        lines.append(_coloured(line, word.replaced, word is top) if colour else line)
    return "\n".join(lines)


def _coloured(line: str, replaced: float, top: bool) -> str:
    codes = RED if replaced >= DISTRUSTED else YELLOW if replaced >= DOUBTED else ""
    codes += BOLD if top else ""
    return f"{codes}{line}{RESET}" if codes else line
