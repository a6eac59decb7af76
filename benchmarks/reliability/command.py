"""Common parts of the commands: progress, an orderly end on SIGTERM, and a verdict as JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from benchmarks import machine, results

PROGRESS_EVERY_S = 10.0
# `timeout` signals a process and then its group: signals within this time (s) are one request to stop.
SAME_SIGNAL_S = 2.0


@dataclass
class Outcome:
    """Result of a command; subclasses add figures."""

    # Counts by kind; empty if all expectations held.
    mistakes: Counter[str] = field(default_factory=Counter)


# Given the options of the command and of the service; writes into the outcome as it proceeds.
Work = Callable[[argparse.Namespace, Sequence[str]], None]


def counted(total: int, unit: str) -> Iterator[int]:
    """Count 0 to total - 1, reporting progress and remaining time on standard error every ten seconds."""
    began = reported = time.monotonic()
    for number in range(total):
        now = time.monotonic()
        if now - reported >= PROGRESS_EVERY_S:
            reported, spent_s = now, now - began
            left_s = spent_s * (total - number) / max(number, 1)
            log(f"{number}/{total} {unit}, {number / spent_s:.4g}/s, {minutes(left_s)} left")
        yield number


def log(text: str) -> None:
    """Print a line on standard error with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def minutes(seconds: float) -> str:
    """Format as `minutes:seconds`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, as Ctrl-C does, so that services are stopped too."""
    last_signal_s = -SAME_SIGNAL_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last_signal_s
        before, last_signal_s = last_signal_s, time.monotonic()
        if last_signal_s - before >= SAME_SIGNAL_S:
            signal.raise_signal(signal.SIGINT)

    # A process that a shell started in the background ignores SIGINT unless a handler is set.
    handlers = {signal.SIGTERM: stop, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_command(
    name: str, parser: argparse.ArgumentParser, arguments: Sequence[str] | None, outcome: Outcome, work: Work
) -> int:
    """Do the work, print the outcome as one line of JSON and write it to `--out`.

    Returns
    -------
    int
        Exit status: 0 if all expectations held, 1 after a mistake, 130 if stopped.
    """
    machine.add_options(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write the outcome to")
    options, service_options = parser.parse_known_args(arguments)
    try:
        device = machine.choose_device(options)
    except ValueError as error:
        parser.error(str(error))
    described = machine.describe(device)
    began, interrupted = time.monotonic(), False
    try:
        with stoppable():
            work(options, ("--device", device, *service_options))
    except KeyboardInterrupt:
        interrupted = True
    row = vars(outcome) | {"seconds": time.monotonic() - began, "interrupted": interrupted}
    row["held"] = not interrupted and not outcome.mistakes
    print(json.dumps({"benchmark": name, **results.rounded(row)}), flush=True)
    if options.out is not None:
        settings = {key: value for key, value in vars(options).items() if key not in ("out", "device")}
        results.write(options.out, name, described, settings, [row])
    if interrupted:
        return 130
    return 1 if outcome.mistakes else 0
