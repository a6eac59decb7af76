"""For the tests of commands."""

from collections.abc import Iterator
from functools import cache

import pytest

from training import experiment
from training.measurements import Measurements
from training.report import compose


@pytest.fixture(scope="module")
def opened_once() -> Iterator[None]:
    """The commands of one process ask for the same simulated data and calibration again and again."""
    calibrate, known = Measurements.calibrate, {}

    def calibrated(dataset, noise, **options):
        key = dataset.fingerprint, len(dataset.pairs), noise.fingerprint, *sorted(options.items())
        if key not in known:
            known[key] = calibrate(dataset, noise, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Measurements, "calibrate", calibrated)
        for name in ("open_dataset", "simulated_noise"):
            patch.setattr(experiment, name, cache(getattr(experiment, name)))
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without its figures, for whoever looks at its tables alone."""
    monkeypatch.setattr(compose, "draw", lambda *given: None)
