"""The stages of a served request, traced in a separate process."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_walk_stays_in_fourteen_files() -> None:
    command = [sys.executable, "-m", "benchmarks", "walk", "--calls"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    steps = re.findall(r"^[<>] (\S+) (\S+)$", done.stdout, re.MULTILINE)
    # The event loop may work on other requests meanwhile, in files of the service.
    worker = steps[steps.index(("prime_anc/method/design.py", "design_all")) :]
    worker = worker[: worker.index(("service/engine/engine.py", "Engine._work"))]
    assert {file for file, _ in worker if file.startswith(("prime_anc/method/", "prime_anc/core/"))} == {
        "prime_anc/method/design.py",
        "prime_anc/method/joint_prediction.py",
        "prime_anc/method/types.py",
        "prime_anc/core/backend.py",
    }
    n_calls, n_files, n_moves = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
    assert n_calls > n_moves > n_files
    # On a busy machine the engine also watches the connection.
    files = [
        file for file, name in steps if file != "service/engine/waiting.py" and not name.endswith("disconnected")
    ]
    assert len(set(files)) <= 14
    assert sum(before != after for before, after in pairwise(files)) <= 72
