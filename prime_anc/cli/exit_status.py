"""Exit statuses of `prime-anc`, the one list of them."""

from __future__ import annotations

from enum import IntEnum

import click


class ExitStatus(IntEnum):
    """Why a command ended; the value is its exit status."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NO_SERVICE = 3
    NOT_PASSED = 4


MEANINGS = {
    ExitStatus.DONE: "done",
    ExitStatus.REFUSED: "the service refused the request; the message says why",
    ExitStatus.USAGE: "wrong options, or a file that cannot be used",
    ExitStatus.NO_SERVICE: "no service answers at --url, or it is not ready",
    ExitStatus.NOT_PASSED: "a calibration did not pass, or a verification howls or lies outside the predicted interval",
}
assert click.UsageError.exit_code == ExitStatus.USAGE

EPILOG = "\b\nExit status:\n" + "\n".join(f"  {status.value}  {text}" for status, text in MEANINGS.items())
