"""`benchmarks/gpu.sh`: it says what is missing, and a step that fails does not end it."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.sh"


def run(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)


def test_without_arguments_it_explains_itself() -> None:
    done = run()
    assert done.returncode == 2
    assert "benchmarks/gpu.sh OUT DATA" in done.stderr


def test_a_missing_data_folder_is_named(tmp_path: Path) -> None:
    done = run(tmp_path / "out", tmp_path / "nowhere")
    assert done.returncode == 2
    assert f"found no folder {tmp_path / 'nowhere'}" in done.stderr
    assert not (tmp_path / "out").exists()


def test_failing_steps_are_named_at_the_end(tmp_path: Path) -> None:
    """With a python that fails at everything, every step is tried, and its failure is kept."""
    if (failing := shutil.which("false")) is None:
        pytest.skip("no program that always fails")
    done = run(tmp_path, "-", PYTHON=failing)
    assert done.returncode == 1
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(
        "FAILED: prepare machine tests core trace floor http start train train-prime scaling report"
    )
    log = (tmp_path / "log.txt").read_text()
    assert log.count("FAILED after") == 12
    with tarfile.open(tmp_path / "results.tar.gz") as packed:
        assert "./log.txt" in packed.getnames()


def test_some_steps_can_be_run_alone(tmp_path: Path) -> None:
    if (failing := shutil.which("false")) is None:
        pytest.skip("no program that always fails")
    done = run(tmp_path, "-", PYTHON=failing, STEPS="floor train-prime")
    assert done.stdout.strip().splitlines()[-1].startswith("FAILED: prepare machine floor train-prime (see")
