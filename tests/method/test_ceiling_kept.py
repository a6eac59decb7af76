"""All models accept paths of any scale and keep ceilings; a ceiling over frequency."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prime_anc.method.ceiling import ceiling_db
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.design import design_all, predict_all
from prime_anc.method.errors import InvalidOption, SynthesisError, answer_or_raise
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.methods import METHODS
from prime_anc.method.posing import pose
from prime_anc.method.types import Design, DesignOptions, Model, Problem
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from tests.method.cases import Case, random_case
from tests.oracles import measured
from tests.problems import one

CURVE = GainCurve([100, 1000, 8000], [-6, 3, -10])
FINE = 4 * DESIGN_N_FFT


@pytest.fixture(scope="module")
def simulated() -> list[Problem]:
    return inputs_of(random_case(n_cases=2, n_fft=DESIGN_N_FFT, seed=6))


def inputs_of(case: Case, every: int = 1) -> list[Problem]:
    coherence = np.linspace(0.999, 0.99, case.n_bins).astype(np.float32)
    return [
        one(np.fft.irfft(p)[:8192].astype(np.float32), np.fft.irfft(s)[:2048].astype(np.float32), coherence)
        for p, s in zip(case.primary[::every], case.secondary[::every], strict=True)
    ]


def designs(answers: Sequence[Design | SynthesisError]) -> list[Design]:
    assert all(isinstance(answer, Design) for answer in answers), answers
    return answers


def excess_db(taps: np.ndarray, max_gain_db: float | GainCurve) -> float:
    """Four times as fine as the design's grid."""
    return float((20 * np.log10(np.abs(np.fft.rfft(taps, FINE)) + 1e-30) - ceiling_db(max_gain_db, FINE)).max())


@pytest.mark.parametrize("n_updates", [0, 2])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_ceiling(method: str, n_updates: int, simulated: list[Problem], model: Model) -> None:
    for max_gain_db in (0.0, CURVE):
        bound = [replace(ear, max_gain_db=max_gain_db) for ear in simulated]
        for ear, design in zip(
            bound, designs(design_all(bound, DesignOptions(method, n_updates), model)), strict=True
        ):
            # The curve itself may lie below its value within a bin by what half a bin's slope is: 0.05 dB here.
            assert excess_db(design.taps, max_gain_db) < 0.1
            (predicted,) = predict_all([ear], [design.taps], model)
            assert predicted.mean_noise_reduction_db == design.prediction.mean_noise_reduction_db


def test_ceiling_cost_is_stated(simulated: list[Problem], model: Model) -> None:
    (usual, *_), (bound, *_), (loose, *_) = (
        designs(design_all([replace(simulated[0], max_gain_db=item)], DesignOptions("wmmse"), model))
        for item in (DEFAULT_MAX_GAIN_DB, -6.0, np.inf)
    )
    assert usual.ceiling_cost_db is None
    assert loose.ceiling_cost_db is None
    np.testing.assert_array_equal(usual.taps, loose.taps)
    lost_db = usual.prediction.mean_noise_reduction_db - bound.prediction.mean_noise_reduction_db
    assert bound.ceiling_cost_db == pytest.approx(lost_db)
    assert lost_db > 1


@pytest.mark.parametrize(("quieter_db", "loose_db"), [(11.9, 30.0), (20.0, 38.0)])
def test_loose_ceiling_follows_quiet_loudspeakers(quieter_db: float, loose_db: float, model: Model) -> None:
    """An ear's secondary path is up to 12 dB quieter than its primary path."""
    path = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    found = pose(one(path, path * np.float32(10 ** (-quieter_db / 20))), model).loose_db
    assert found == pytest.approx(loose_db, abs=1e-3)


def test_curve_binds_where_low(simulated: list[Problem], model: Model) -> None:
    """A curve above the filter's gain throughout costs nothing, though its lowest value is below the largest gain."""
    (usual,) = designs(design_all(simulated[:1], DesignOptions("wmmse"), model))
    response_db = 20 * np.log10(np.abs(np.fft.rfft(usual.taps, DESIGN_N_FFT)) + 1e-30)
    low_from = int(np.flatnonzero(response_db > response_db.max() - 3)[-1]) * 48_000 / DESIGN_N_FFT
    assert low_from < 20_000
    quiet_db = float(response_db[int(21_000 * DESIGN_N_FFT / 48_000) :].max())
    curve = GainCurve([20_000, 21_000], [float(response_db.max()) + 1, quiet_db + 1])
    (bound,) = designs(design_all([replace(simulated[0], max_gain_db=curve)], DesignOptions("wmmse"), model))
    assert excess_db(usual.taps, curve) < 0
    assert quiet_db + 1 < usual.prediction.max_gain_db
    np.testing.assert_array_equal(bound.taps, usual.taps)


@pytest.mark.measured
def test_ceiling_search_uses_fine_grid(measured_data: Path, model: Model) -> None:
    """Whole measured responses vary within a bin of the grid of `fast`, on which 3 dB were lost."""
    means = []
    whole = [
        one(*(item[:8192].astype(np.float32) for item in pair), max_gain_db=12.0)
        for pair in list(measured.read_ears(measured_data).values())[::2]
    ]
    for profile in ("fast", "fine"):
        taps = [item.taps for item in designs(design_all(whole, DesignOptions("prime", 3, profile), model))]
        scores = predict_all(whole, taps, model, is_true=True)
        means.append(np.mean([answer_or_raise(score).mean_noise_reduction_db for score in scores]))
    assert abs(means[1] - means[0]) < 0.1  # measured on 15 ears: 27.4 dB both


N_FFT = 8192
FREQUENCY_HZ = np.arange(N_FFT // 2 + 1) * SAMPLE_RATE_HZ / N_FFT


def test_bin_holds_lowest_value_nearby() -> None:
    points_hz, gain_db = [20, 55.5, 56, 500, 501, 23_999], [30, 30, -20, -20, 12, 40]
    found = GainCurve(points_hz, gain_db).least_db(N_FFT)
    fine_hz = np.concatenate([np.geomspace(1, 24_000, 200_001), points_hz])
    fine_db = np.interp(np.log(fine_hz), np.log(points_hz), gain_db)
    nearest = np.rint(fine_hz * N_FFT / SAMPLE_RATE_HZ).astype(int)
    assert (found[nearest] <= fine_db + 1e-9).all()


@pytest.mark.parametrize(
    ("frequency_hz", "gain_db", "message"),
    [
        ([100], [1, 2], "as many values"),
        ([0, 100], [1, 2], "above 0 Hz"),
        ([200, 100], [1, 2], "rise"),
        ([100, np.nan], [1, 2], "finite"),
    ],
)
def test_what_is_no_curve_is_rejected(frequency_hz: list[float], gain_db: list[float], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        GainCurve(frequency_hz, gain_db)
    assert caught.value.field == "max_gain_db"
