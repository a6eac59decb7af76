"""What runs for minutes has in common: it tells how far it has come, ends when told to, and states a verdict."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from benchmarks import machine, results
from service.engine.engine import choose_device

TELL_EVERY_S = 10.0
SAME_SIGNAL_S = 2.0
"""`timeout` signals a process and then its group: what comes within this time is one wish to stop."""


class Outcome(Protocol):
    """A data class of what was seen. mistakes: by kind; nothing in it is what must hold."""

    mistakes: Any


Work = Callable[[argparse.Namespace, Sequence[str]], None]
"""Given the options and those that are the service's; writes into the outcome as it goes on."""


def counted(total: int, unit: str) -> Iterator[int]:
    """0 to total - 1, with a line on standard error every ten seconds: how many are done, and the time left."""
    began = told = time.monotonic()
    for number in range(total):
        now = time.monotonic()
        if now - told >= TELL_EVERY_S:
            told, spent_s = now, now - began
            left_s = spent_s * (total - number) / max(number, 1)
            say(f"{number}/{total} {unit}, {number / spent_s:.4g}/s, {as_time(left_s)} left")
        yield number


def say(text: str) -> None:
    """A line on standard error, beside the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def as_time(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that whatever it started is ended too."""
    asked = -SAME_SIGNAL_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        before, asked = asked, time.monotonic()
        if asked - before >= SAME_SIGNAL_S:
            signal.raise_signal(signal.SIGINT)

    # Python's own handler is not there in a process that a shell started in the background.
    handlers = {signal.SIGTERM: stop, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(
    name: str,
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    outcome: Outcome,
    work: Work,
    shown: Callable[[], Mapping[str, Any]] | None = None,
) -> int:
    """Do the work, print one line of JSON and, where `--out` says so, write it with date, device and commit.

    shown: what of the outcome; all of it by default. Returns the exit status: 0 where everything held, 1 after a
    mistake, 130 where it was told to stop; then the line says how far it came.
    """
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write the outcome to")
    options, rest = parser.parse_known_args(arguments)
    try:
        device = choose_device(options.device)
    except ValueError as error:
        parser.error(str(error))
    with redirect_stdout(sys.stderr):
        described = machine.describe(device)
    began, interrupted = time.monotonic(), False
    try:
        with stoppable():
            work(options, ("--device", device.type, *rest))
    except KeyboardInterrupt:
        interrupted = True
    row = dict(vars(outcome) if shown is None else shown())
    row |= {"seconds": round(time.monotonic() - began, 1), "interrupted": interrupted}
    row["held"] = not interrupted and not outcome.mistakes
    print(json.dumps({"benchmark": name, **results.rounded(row)}), flush=True)
    if options.out is not None:
        settings = {
            key: value.name if isinstance(value, Path) else value  # where it lies is the machine's own affair
            for key, value in vars(options).items()
            if key not in ("out", "device")
        }
        with redirect_stdout(sys.stderr):
            results.write_file(options.out, name, described, settings, [results.rounded(row)])
    if interrupted:
        return 130
    return 1 if outcome.mistakes else 0
