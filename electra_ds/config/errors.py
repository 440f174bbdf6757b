"""The one exception that a user is meant to see.

Every command turns an :class:`InputError` into one line on stderr and exit code 2, without a
traceback. Its message names the file or setting, the value found, and what to do about it.
"""

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 75  # EX_TEMPFAIL: stopped by a signal after saving, so that a batch system requeues


class InputError(Exception):
    """Something the user gave is wrong: the message is one line and says what to change."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RunFailure(Exception):
    """The work itself failed (exit code 1): the message is one line and says what happened."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known name closest to ``name``, or ``""``."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
