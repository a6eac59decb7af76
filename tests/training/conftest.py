"""One tiny trained run, and data that is read and calibrated once, for all tests of commands."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from training import run_data
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements
from training.report import compose

SCRIPT = Path(__file__).parents[2] / "training" / "run_splits.py"
UPDATES = "50"
METHODS = "ratio_base_held_band,wmmse,prime-log"
QUICK = (
    *("--dataset", "simulated", "--quick", "--updates", UPDATES, "--support", "2"),
    *("--methods", METHODS),
)


def command(folder: Path, *options: str) -> list[str]:
    """Arguments of a quick run in a folder."""
    return [*QUICK, "--store", str(folder / "store"), "--out", str(folder / "out"), *options]


@pytest.fixture(scope="session")
def measurements() -> Measurements:
    """Three simulated listeners, calibrated with simulated noises."""
    return Measurements.calibrate(simulate_listeners(3, 0), simulated_noise(0), window=8192, conditions="original")


@dataclass(frozen=True)
class QuickRun:
    """A finished run of the real script: its folder (`store`, `out`) and what it printed."""

    folder: Path
    printed: str


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> QuickRun:
    """A quick run in a process of its own, made once for all of pytest's workers; this worker's copy of it.

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
            done = subprocess.run(
                [sys.executable, str(SCRIPT), *command(making)],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            assert done.returncode == 0, done.stderr
            (making / "printed").write_text(done.stdout)
            making.rename(original)
    folder = tmp_path_factory.mktemp("quick") / "run"
    shutil.copytree(original, folder)
    return QuickRun(folder, (folder / "printed").read_text())


@pytest.fixture(scope="session")
def opened_once() -> Iterator[None]:
    """The commands of one process ask for the same simulated data and calibration again and again."""
    calibrate, known = Measurements.calibrate, {}

    def calibrated(dataset, noise, **options):
        names = tuple(pair.name for pair in dataset.pairs)
        priors = options.get("priors") or {}
        by_value = options | {"priors": tuple((name, each.primary.mean[100]) for name, each in priors.items())}
        key = dataset.fingerprint, names, noise.fingerprint, *sorted(by_value.items())
        if key not in known:
            known[key] = calibrate(dataset, noise, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Measurements, "calibrate", calibrated)
        for name in ("open_dataset", "simulated_noise"):
            patch.setattr(run_data, name, cache(getattr(run_data, name)))
        yield


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of tables alone."""
    monkeypatch.setattr(compose, "draw", lambda *given: None)
