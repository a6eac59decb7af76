"""`benchmarks/gpu.sh`: it says what is missing, and a step that fails does not end it."""

import os
import subprocess
import tarfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.sh"


def run(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=600)


def test_failing_steps_are_named_at_end(tmp_path: Path) -> None:
    """With a python that can import torch and nothing else, every step is tried, and its failure is kept."""
    poor = tmp_path / "python"
    poor.write_text('#!/bin/sh\n[ "$1 $2" = "-c import torch" ]\n')
    poor.chmod(0o755)
    done = run("c", tmp_path / "out", "-", PYTHON=str(poor), DEVICE="cpu")
    assert done.returncode == 1
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("FAILED: machine start load service train (see")
    assert (tmp_path / "out" / "log-c.txt").read_text().count("FAILED after") == 5
    with tarfile.open(tmp_path / "out" / "results.tar.gz") as packed:
        assert "./log-c.txt" in packed.getnames()
