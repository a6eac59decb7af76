"""Exit statuses of `prime-anc`, the one list of them."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Why a command ended; the value is its exit status, of which USAGE is click's own."""

    DONE, REFUSED, USAGE, NO_SERVICE, NOT_PASSED = range(5)


MEANINGS = (
    "done",
    "the service refused the request; the message says why",
    "wrong options, or a file that cannot be used",
    "no service answers at --url, or it is not ready",
    "a calibration did not pass, or a verification howls or lies outside the predicted interval",
)
EPILOG = "\b\nExit status:\n" + "\n".join(f"  {status}  {text}" for status, text in enumerate(MEANINGS))
