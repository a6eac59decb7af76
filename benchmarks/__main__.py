"""`python -m benchmarks COMMAND`: measure one thing, print a table, write a JSON file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.results import RESULTS_ROOT

COMMANDS = {
    "core": "design times by number of updates, beside scipy.linalg.solve_toeplitz",
    "load": "requests to the running service: latencies, capacity, and what happens at three times that",
    "start": "seconds and megabytes from the start of the service to ready",
    "train": "updates per second and time per model",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 2, with one line on standard error, for a mistake in the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in given if word in COMMANDS), None)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.add_argument("--out", type=Path, help=f"folder to write to (default: {RESULTS_ROOT}/MACHINE)")
        command.add_argument("--quick", action="store_true", help="a few rounds, to see that it runs")
        if name == chosen:  # commands import only what they need
            import_module(f"benchmarks.{name}").add_options(command)
    options = parser.parse_args(given)
    try:
        status: int = import_module(f"benchmarks.{options.command}").run(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"benchmarks {options.command}: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
