"""One tiny trained run, made once, for all tests of the experiment."""

import fcntl
import io
import os
import shutil
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements
from training.run_splits import main

QUICK = (
    *("--dataset", "simulated", "--quick", "--updates", "12", "--support", "2"),
    *("--methods", "ratio_base_held_band,wmmse,prime-log"),
)


def command(folder: Path, *options: str) -> list[str]:
    """Arguments of a quick run in a folder."""
    return [*QUICK, "--store", str(folder / "store"), "--out", str(folder / "out"), *options]


@pytest.fixture(scope="session")
def measurements() -> Measurements:
    """Three simulated listeners, calibrated with simulated noises."""
    return Measurements.calibrate(simulate_listeners(3, 0), simulated_noise(0), window=8192, conditions="original")


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of tables alone."""
    monkeypatch.setattr("training.figures.draw", lambda *given: None)


@dataclass(frozen=True)
class QuickRun:
    """A finished run of the real command: its folder (`store`, `out`) and what it printed."""

    folder: Path
    printed: str


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> QuickRun:
    """A quick run of the command, made once for all of pytest's workers; this worker's copy of it.

    Tests leave its files as they are.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    original = shared / "quick-run"
    with (shared / "quick-run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            making = shared / "quick-run-in-the-making"
            printed = io.StringIO()
            with redirect_stdout(printed):
                assert main(command(making)) == 0
            (making / "printed").write_text(printed.getvalue())
            making.rename(original)
    folder = tmp_path_factory.mktemp("quick") / "run"
    shutil.copytree(original, folder)
    return QuickRun(folder, (folder / "printed").read_text())
