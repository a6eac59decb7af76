"""Takes of measured ears whose signals were recorded or played by clocks that drift apart."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.signal import czt, fftconvolve, resample_poly

from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import judge
from prime_anc.measure.clocks import NO_DRIFT, one_clock
from prime_anc.measure.estimate import GainTake, PathEstimate, PlayedTake, estimate_paths
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from tests.measure.probe_takes import noisy
from tests.oracles import measured
from training.datasets.synthetic_noise import airplane_noise
from training.simulated_calibration import record

pytestmark = pytest.mark.usefixtures("coarse_posterior")

Array = np.ndarray
Change = Callable[[Array], Array]

N = 4 * SAMPLE_RATE_HZ
WHITE = 0.05 * np.random.default_rng(1).standard_normal(N)


def drifted(signal: Array, ppm: float) -> Array:
    """Return what a clock that is faster by ppm records, by a chirp-z transform of the spectrum."""
    spectrum = np.fft.rfft(signal)
    spectrum[[0, -1]] /= 2
    step = np.exp(2j * np.pi / (len(signal) * (1 + 1e-6 * ppm)))
    return 2 / len(signal) * czt(spectrum, len(signal), step).real


def takes_of(x: Array, ear: measured.MeasuredEar, change: Change, snr_db: float = 40.0) -> list[GainTake]:
    """Takes whose error microphone is changed."""
    takes = record(x[None], (ear.primary, ear.secondary), snr_db, [2])
    return [replace(take, error=change(take.error)) for take in takes]


def difference(found: PathEstimate, right: PathEstimate) -> float:
    """Return the error of both paths over their size."""
    pairs = ((getattr(item, name) for item in (found, right)) for name in ("primary", "secondary"))
    return max(np.linalg.norm(one - other) / np.linalg.norm(other) for one, other in pairs)


@pytest.fixture(scope="module")
def right(ears: list[measured.MeasuredEar]) -> Calibration:
    """Of an ear whose signals have one clock."""
    return calibrate(takes_of(WHITE, ears[3], np.asarray))


@pytest.mark.parametrize("ppm", [5.0, -1000.0])
def test_steady_drift_is_named_and_undone(ears: list[measured.MeasuredEar], right: Calibration, ppm: float) -> None:
    found = calibrate(takes_of(WHITE, ears[3], partial(drifted, ppm=ppm)))
    assert found.clock_drift.ppm == pytest.approx(ppm, rel=0.1)
    verdict = judge(found, None)
    assert verdict.passed
    (note,) = [item.detail for item in verdict.not_judged if item.code == "clock_drift"]
    assert f"{found.clock_drift.ppm:+.3g} ppm" in note
    assert difference(found.measured, right.measured) < 0.03


def test_played_drift_is_named_and_undone(ears: list[measured.MeasuredEar]) -> None:
    ear, drive = ears[0], 0.05 * np.random.default_rng(3).standard_normal(N + 4800)
    silent = GainTake(0.0, WHITE, fftconvolve(WHITE, ear.primary)[:N])
    heard = [noisy(fftconvolve(drive, path)[: len(drive)], 40) for path in (0.05 * ear.secondary, ear.secondary)]
    right = estimate_paths([silent], drives=[PlayedTake(drive, *heard)])
    take = PlayedTake(drive, *(drifted(item, 5) for item in heard), "d.wav")
    takes, drives, drift = one_clock([silent], [take])
    assert drift.ppm == pytest.approx(5, rel=0.1)
    assert drift.where.startswith("d.wav")
    assert difference(estimate_paths(takes, drives=drives), right) < 0.03


@pytest.mark.parametrize("seconds", [2, 4])
def test_right_takes_show_no_drift(ears: list[measured.MeasuredEar], measured_data: Path, seconds: int) -> None:
    """Steep, noisy, swept and short ones."""
    n = seconds * SAMPLE_RATE_HZ
    t = np.arange(n) / n
    sweep = 0.07 * np.sin(2 * np.pi * 20 * seconds / np.log(1000) * np.expm1(np.log(1000) * t))
    probes = [*measured.read_noises(measured_data)[:2], airplane_noise(0), WHITE, sweep]
    for place, x in enumerate(probes):
        for snr_db in (40.0, 20.0):
            assert one_clock(takes_of(x[:n], ears[place], np.asarray, snr_db), [])[2] == NO_DRIFT


def without_samples(signal: Array, n: int) -> Array:
    half = len(signal) // 2
    return np.concatenate((signal[:half], signal[half + n :], np.zeros(n)))


def wandering(signal: Array) -> Array:
    n = np.arange(len(signal))
    return CubicSpline(np.arange(4 * len(n)) / 4, resample_poly(signal, 4, 1))(n + np.sin(2 * np.pi * n / len(n)))


@pytest.mark.parametrize("change", [partial(without_samples, n=1), partial(without_samples, n=64), wandering])
def test_unsteady_drift_is_refused(ears: list[measured.MeasuredEar], change: Change) -> None:
    (reason,) = judge(calibrate(takes_of(WHITE, ears[0], change)), None).reasons
    assert reason.code == "clock_drift"
    assert "longer" not in reason.detail
