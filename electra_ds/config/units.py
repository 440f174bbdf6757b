"""Settings written with a unit: the length of a run, and times between events."""

import re
from dataclasses import dataclass
from fractions import Fraction

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_DURATION = re.compile(r"(\d[\d_]*(?:\.\d+)?)([kMGT]?)(ba|ep|tok)")
_MINUTES = re.compile(r"(\d[\d_]*(?:\.\d+)?)min")


@dataclass(frozen=True)
class Duration:
    """Length of a run: an exact amount of batches (``ba``), epochs (``ep``) or tokens (``tok``)."""

    amount: Fraction
    unit: str


def parse_duration(text: str) -> Duration:
    """Parse ``1000000ba``, ``40ep``, ``30Gtok``; raises ValueError unless positive and well formed."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(text)
    number, suffix, unit = match.groups()
    # Fractions keep 0.3G exactly 300000000.
    amount = Fraction(number.replace("_", "")) * _SUFFIXES[suffix]
    if amount <= 0 or (unit != "ep" and amount.denominator != 1):
        raise ValueError(text)
    return Duration(amount, unit)


def parse_minutes(text: str) -> float:
    """Parse ``30min`` into seconds; raises ValueError unless positive and well formed."""
    match = _MINUTES.fullmatch(text)
    if not match or float(match[1].replace("_", "")) <= 0:
        raise ValueError(text)
    return float(match[1].replace("_", "")) * 60.0
