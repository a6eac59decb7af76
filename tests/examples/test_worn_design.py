"""The example of conditions, latency and loop against the real program."""

import os
import subprocess
import sys
from pathlib import Path

from tests.service.program import Program

SCRIPT = Path(__file__).parents[2] / "examples" / "worn_design.py"


def test_it_shows_conditions_loop_and_latencies(program: Program) -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--url", program.address],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SCRIPT.parents[1]), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines[1:3]] == ["closed", "pressed"]
    for _, both_db, other_db in lines[1:3]:
        assert float(both_db) > float(other_db)
    assert lines[3][:3] == ["loop:", "stable", "True,"]
    assert [line[0] for line in lines[5:]] == ["0", "1", "2", "4", "8"]
    assert float(lines[5][1]) > float(lines[9][1])
