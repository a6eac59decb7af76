"""Train and evaluate every method on splits of a path data set.

    python -m training.run_splits --dataset pandar --data DIR --noise DIR --methods all --splits 10 --seeds 3 --out DIR

Fits and scores every method on the same cases, and writes rows, tables and figures (`training.experiment`).
Repeating the command resumes an interrupted run.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from joblib.externals.loky.process_executor import TerminatedWorkerError
from pydantic import ValidationError

from model_store.errors import ModelStoreError
from training.config import Configuration
from training.experiment import run
from training.methods import GROUPS, METHODS
from training.rows import RunError

# Errors in the request, the data or the environment: reported in one line, without a traceback.
MISTAKES = (ModelStoreError, RunError, OSError, ImportError, ValueError, FloatingPointError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit status: 2 for an error in the request, data or environment."""
    try:
        print(run(parse(arguments)))
    except KeyboardInterrupt:
        print("run_splits: interrupted; repeat the command to resume", file=sys.stderr)
        return 130
    except TerminatedWorkerError:
        print("run_splits: a worker was killed, perhaps for memory; repeat the command to resume", file=sys.stderr)
        return 2
    except ValidationError as error:
        for item in error.errors():
            name = ".".join(map(str, item["loc"]))
            print(f"run_splits: {name}: {item['input']!r}: {item['msg']}", file=sys.stderr)
        return 2
    except MISTAKES as error:
        print(f"run_splits: {error}", file=sys.stderr)
        return 2
    return 0


def parse(arguments: Sequence[str] | None) -> Configuration:
    """Fill a configuration from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join((*GROUPS, *METHODS))
    for name, field in Configuration.model_fields.items():
        help_text = (field.description or "").format(methods=known).replace("%", "%%")
        parser.add_argument(f"--{name}", **_kind(field.annotation), help=help_text)
    parser.add_argument("--config", type=Path, help="TOML file with values for any of these options")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    file = given.pop("config", None)
    return Configuration.load((tomllib.loads(file.read_text()) if file else {}) | given)


def _kind(annotation: Any) -> dict[str, Any]:
    """Options of argparse for a field's type; pydantic checks the value."""
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType]
    if get_origin(annotation) is Literal:
        return {"choices": kinds}
    return {"action": "store_true", "default": None} if annotation is bool else {}


if __name__ == "__main__":
    sys.exit(main())
