"""`python -m benchmarks COMMAND`: measure one thing, write its JSON file, print its rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.results import RESULTS_ROOT

COMMANDS = {
    "core": "every stage and the whole of a design, beside other designers, with the noise reduction of each",
    "http": "whole requests to the real service: closed and open loop, JSON and binary",
    "sizing": "designs a second over HTTP, by cores and by clients",
    "start": "seconds from the start of the service to its readiness",
    "train": "updates per second and time per model",
    "adaptive": "samples per second of the filters that adapt sample by sample",
    "scaling": "cost against taps, grid, batch and number of updates",
    "trace": "operators and bytes of each stage, counted",
    "floor": "operations, bytes and launches of each stage at the least, from the mathematics",
    "bound": "what the calls of each stage must take on this processor, beside what it takes",
    "report": "draw what the others wrote: pictures and a table",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. A mistake in the request is one line on standard error, status 2."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in given if word in COMMANDS), None)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.add_argument("--out", type=Path, help=f"folder to write to (default: {RESULTS_ROOT}/DATE-DEVICE)")
        if name == chosen:  # each command loads only what it needs
            import_module(f"benchmarks.{name}").add_options(command)
    options = parser.parse_args(given)
    try:
        import_module(f"benchmarks.{options.command}").run(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"benchmarks {options.command}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
