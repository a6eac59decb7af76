"""One tiny trained run, made once, for all tests of the experiment."""

import fcntl
import io
import os
import shutil
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from training import data, methods
from training.datasets.noise import NoiseSet, simulated_noise
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
def few_noises() -> NoiseSet:
    """Two simulated recordings, white and pink."""
    whole = simulated_noise(0)
    return whole.of(whole.names[:2], ("white", "pink"))


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch: pytest.MonkeyPatch, few_noises: NoiseSet) -> None:
    """Runs without recordings calibrate, train and score with these alone, and design once."""
    shorten(monkeypatch, few_noises)


def shorten(patch: pytest.MonkeyPatch, noises: NoiseSet) -> None:
    patch.setattr(data, "simulated_noise", lambda: noises)
    patch.setattr(methods, "N_CALLS", 1)


@pytest.fixture(scope="session")
def measurements(few_noises: NoiseSet) -> Measurements:
    """Three simulated listeners, calibrated with simulated noises."""
    return Measurements.calibrate(simulate_listeners(3, 0), few_noises, window=8192, conditions="original")


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
def finished(tmp_path_factory: pytest.TempPathFactory, few_noises: NoiseSet) -> QuickRun:
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
            with redirect_stdout(printed), pytest.MonkeyPatch.context() as patch:
                shorten(patch, few_noises)
                assert main(command(making)) == 0
            (making / "printed").write_text(printed.getvalue())
            making.rename(original)
    folder = tmp_path_factory.mktemp("quick") / "run"
    shutil.copytree(original, folder)
    return QuickRun(folder, (folder / "printed").read_text())
