"""The figures of a filter from band sums against an evaluation per bin, and what stands for a missing coherence."""

import dataclasses

import numpy as np
import pytest
import torch

from synthesis.bands import WIDE_BANDS, centre_hz
from synthesis.errors import NonFiniteFilter
from synthesis.predict import (
    COHERENCE_SHARE,
    CUT_DB,
    MODEL_BOUND,
    N_SUMS,
    NATURAL_SPREAD,
    RESPONSE_LENGTHS,
    a_weight,
    band_sums,
    expected_uncertainty,
    mean_prediction,
    predict,
)
from synthesis.start.wiener import design_wmmse
from synthesis.support_statistics import band_uncertainty, late_share, learn_uncertainty
from synthesis.types import Prediction
from tests.oracles import measured
from tests.oracles import noise_reduction as oracle
from tests.oracles.octave_bands import band_sums as oracle_band_sums
from tests.oracles.octave_bands import band_sums as oracle_sums
from tests.synthesis.cases import SMALL_N_TAPS, Case, mean_reductions_db, predictions

N_FFT = 32_768
LEARNED = np.stack((np.full(31, 0.01), np.ones(31)))


@dataclasses.dataclass(frozen=True)
class OneEar:
    """primary, secondary: complex128 [16385]; taps [64]; reference_psd, coherence [16385]."""

    primary: np.ndarray
    secondary: np.ndarray
    taps: np.ndarray
    reference_psd: np.ndarray
    coherence: np.ndarray

    def sums(self, *, with_coherence: bool = True, is_true: bool = False) -> np.ndarray:
        coherence = self.coherence[None] if with_coherence else None
        given = self.primary[None], self.secondary[None], self.taps[None], self.reference_psd, coherence
        return band_sums(*given, is_true=is_true)[0]

    def predicted(
        self,
        learned: np.ndarray = LEARNED,
        *,
        with_coherence: bool = True,
        is_true: bool = False,
        uncertainty: np.ndarray | None = None,
    ) -> Prediction:
        sums = self.sums(with_coherence=with_coherence, is_true=is_true)
        return predict(sums, learned, has_coherence=with_coherence, is_true=is_true, uncertainty=uncertainty)

    def mean_db(self, secondary: np.ndarray) -> float:
        return oracle.predict(
            self.primary, secondary, self.taps, self.reference_psd, band_uncertainty=np.zeros(31)
        ).mean_noise_reduction_db


@pytest.fixture
def ear() -> OneEar:
    """A filter that reaches about 20 dB on short random paths."""
    rng = np.random.default_rng(3)
    secondary = np.fft.rfft(np.r_[1.0, 0.3 * rng.standard_normal(30) * np.exp(-np.arange(30) / 5)], N_FFT)
    taps = rng.standard_normal(64) * np.exp(-np.arange(64) / 10)
    error = np.fft.rfft(0.01 * rng.standard_normal(4096) * np.exp(-np.arange(4096) / 300), N_FFT)
    primary = secondary * np.fft.rfft(taps, N_FFT) + error
    return OneEar(
        primary, secondary, taps, rng.uniform(0.5, 2, N_FFT // 2 + 1), rng.uniform(0.98, 1, N_FFT // 2 + 1)
    )


def assert_equals_the_twin(found: Prediction, expected: oracle.Prediction, atol: float = 1e-6) -> None:
    for field in dataclasses.fields(expected):
        # Float64 against float64: the floor of 1e-12 that the twin does not have and the rounding to float32.
        np.testing.assert_allclose(
            getattr(found, field.name), getattr(expected, field.name), rtol=1e-6, atol=atol, err_msg=field.name
        )


def test_figures_of_true_paths_equal_twin(ear: OneEar) -> None:
    found = ear.predicted(is_true=True)
    paths = ear.primary, ear.secondary, ear.taps, ear.reference_psd
    assert_equals_the_twin(found, oracle.predict(*paths, band_uncertainty=np.zeros(31)))
    assert found.interval_db == 0


def flat_ear(residual: np.ndarray | float) -> OneEar:
    """An ear of flat paths whose filter leaves `residual` of the disturbance."""
    ones = np.ones(N_FFT // 2 + 1)
    return OneEar(ones + 0j, (1 - residual) * ones + 0j, np.ones(1), 1e-4 * ones, 0.99 * ones)


def test_one_loud_band_counts_in_full() -> None:
    frequency = np.linspace(0, 24_000, N_FFT // 2 + 1)
    inside = (frequency > 178) & (frequency < 224)  # in the 200 Hz band
    found = flat_ear(np.where(inside, 2.0, 0.1)).predicted(is_true=True)
    assert (found.noise_reduction_db < 0).sum() == 1
    worst = -found.noise_reduction_db.min()
    assert 5 < worst < 6.1
    assert found.amplification_db == pytest.approx(worst / 23, rel=1e-6)
    assert found.wide_amplification_db == pytest.approx(worst / 31, rel=1e-6)


def test_what_is_unknown_limits_claim() -> None:
    """A perfect filter is limited to 1 + 1 / (0.8 u) by u = (1 - c) / c."""
    found = flat_ear(0.0).predicted(LEARNED * [[100], [1]])
    expected_db = 10 * np.log10(1 + 0.99 / (COHERENCE_SHARE * 0.01))
    np.testing.assert_allclose(found.band_reduction_db, expected_db, atol=1e-5)


def test_share_of_what_coherence_leaves_unexplained_is_counted(ear: OneEar) -> None:
    unexplained = (1 - ear.coherence) / ear.coherence
    counted = dataclasses.replace(ear, coherence=1 / (1 + COHERENCE_SHARE * unexplained))
    paths = ear.primary, ear.secondary, ear.taps, ear.reference_psd
    unbounded = LEARNED * [[100], [1]]
    assert_equals_the_twin(ear.predicted(unbounded), oracle.predict(*paths, counted.coherence))


def test_model_bounds_what_coherence_may_cost(ear: OneEar) -> None:
    """A microphone's noise lowers the coherence without making the paths less certain."""
    deaf = dataclasses.replace(ear, coherence=np.full_like(ear.coherence, 0.01)).predicted()
    sums = ear.sums()
    share = expected_uncertainty(sums[:31], sums[-34:-3], sums[-1], LEARNED)
    paths = ear.primary, ear.secondary, ear.taps, ear.reference_psd
    assert_equals_the_twin(deaf, oracle.predict(*paths, band_uncertainty=MODEL_BOUND * share))


def test_secondary_uncertainty_counts_with_filter(ear: OneEar) -> None:
    of_primary, of_secondary = np.full(31, 1e-3), np.full(31, 4e-3)
    found = ear.predicted(uncertainty=np.stack((of_primary, of_secondary)))
    played = ear.secondary * np.fft.rfft(ear.taps, N_FFT)
    disturbance, left, control = (
        oracle_band_sums(WIDE_BANDS, ear.reference_psd * np.abs(item) ** 2)
        for item in (ear.primary, ear.primary - played, played)
    )
    unknown = of_primary * disturbance
    expected_db = 10 * np.log10((disturbance + unknown) / (left + unknown + of_secondary * control))
    np.testing.assert_allclose(found.band_reduction_db, expected_db, atol=1e-5)
    assert found.basis == "coherence"


def test_bands_that_the_unknown_may_make_louder_are_named(ear: OneEar) -> None:
    """With 0.4 of the loudspeaker's sound unknown 4 dB are predicted, but three times as much would be louder."""
    known = np.full((2, 31), 1e-6)
    assert ear.predicted(with_coherence=False, uncertainty=known).louder_bands == ()
    known[1, 12], known[1, 20] = 0.4, 0.2
    found = ear.predicted(with_coherence=False, uncertainty=known)
    assert found.louder_bands == (WIDE_BANDS[12],)
    assert found.band_reduction_db[12] > 3


def test_amplitude_of_error_counts_in_low_bands() -> None:
    """With 0.81 left and 0.02 unknown, three times as much stays quieter, sums of amplitudes do not."""
    known = np.zeros((2, 31))
    known[0] = 0.02
    found = flat_ear(0.9).predicted(with_coherence=False, uncertainty=known)
    assert found.louder_bands == WIDE_BANDS[:4]
    assert found.least_reduction_db[0] == pytest.approx(
        10 * np.log10(1.02 / (0.83 + 2 * np.sqrt(0.81 * 0.02))), abs=1e-5
    )


def test_error_of_secondary_path_counts_for_nothing_in_unknown_band(ear: OneEar) -> None:
    known = np.full((2, 31), 1e-6)
    known[:, 12] = 2.0
    found = ear.predicted(with_coherence=False, uncertainty=known)
    assert found.band_reduction_db[12] == pytest.approx(10 * np.log10(3 / 2), abs=0.1)


@pytest.mark.parametrize(
    ("name", "change", "atol"),
    [
        # The loudspeaker's own share of the error is in the sums: exact but for the floor of 1e-12.
        ("gain", np.log(10) / 20, 1e-6),
        # Within a band the phase is taken at its centre, from which it differs by up to a ninth.
        ("delay", 1j * np.linspace(0, np.pi, N_FFT // 2 + 1), 0.1),
    ],
)
def test_sensitivity_is_loss_with_changed_secondary_path(
    ear: OneEar, name: str, change: object, atol: float
) -> None:
    found = ear.predicted(is_true=True)
    changed = [ear.mean_db(ear.secondary * np.exp(sign * change)) for sign in (1, -1)]
    sensitivity_db = getattr(found, f"{name}_sensitivity_db")
    assert sensitivity_db == pytest.approx(found.mean_noise_reduction_db - min(changed), abs=atol)
    assert sensitivity_db > 1


def test_level_reduction_is_of_sum_over_bands(ear: OneEar) -> None:
    found = ear.predicted(is_true=True)
    before = oracle_band_sums(WIDE_BANDS, ear.reference_psd * np.abs(ear.primary) ** 2)
    error = ear.primary - ear.secondary * np.fft.rfft(ear.taps, N_FFT)
    after = oracle_band_sums(WIDE_BANDS, ear.reference_psd * np.abs(error) ** 2)
    assert found.level_reduction_db == pytest.approx(10 * np.log10(before.sum() / after.sum()), abs=1e-6)
    weight = a_weight(np.array([centre_hz(n) for n in WIDE_BANDS]))
    expected = 10 * np.log10((weight * before).sum() / (weight * after).sum())
    assert found.a_weighted_level_reduction_db == pytest.approx(expected, abs=1e-6)


def test_weighting_has_values_of_standard() -> None:
    """IEC 61672-1, Table 3, at the exact frequencies of the nominal 31.5, 63, 125, ... 16000 Hz."""
    bands = (15, 18, 21, 24, 27, 30, 33, 36, 39, 42)
    nominal_db = [-39.4, -26.2, -16.1, -8.6, -3.2, 0.0, 1.2, 1.0, -1.1, -6.6]
    found_db = 10 * np.log10(a_weight(np.array([centre_hz(n) for n in bands])))
    np.testing.assert_allclose(found_db, nominal_db, atol=0.05 + 1e-9)  # the table has one decimal


def test_uncertainty_beyond_natural_one_costs(ear: OneEar) -> None:
    natural = 1 / (1 + NATURAL_SPREAD * LEARNED[0, 0] / COHERENCE_SHARE)
    unbounded = LEARNED * [[1], [1e9]]
    poor, good, better = (
        dataclasses.replace(ear, coherence=np.full_like(ear.coherence, item)).predicted(unbounded)
        for item in (0.8, natural, 0.999)
    )
    assert good.uncertainty_cost_db == pytest.approx(0, abs=1e-6)
    assert better.uncertainty_cost_db == pytest.approx(0, abs=1e-9)  # two sums of the same bands round differently
    missing = good.mean_noise_reduction_db - poor.mean_noise_reduction_db
    assert poor.uncertainty_cost_db == pytest.approx(missing, abs=1e-6)
    assert missing > 3


def test_model_expects_more_of_response_that_is_cut() -> None:
    disturbance, late = np.ones(31), np.full(31, 0.02)
    typical, per_share = LEARNED
    expected = [
        expected_uncertainty(disturbance, late * (n > 2048), n, LEARNED) for n in (8192, 2048, 512, 256, 128)
    ]
    assert (np.diff(expected[1:], axis=0) > 0).all()
    np.testing.assert_allclose(expected[0], 10 ** (CUT_DB[-1] / 10) * np.sqrt(typical * per_share * late))
    np.testing.assert_allclose(expected[1], 10 ** (CUT_DB[RESPONSE_LENGTHS.index(2048)] / 10) * typical)
    np.testing.assert_allclose(expected_uncertainty(disturbance, late, 20_000, LEARNED), expected[0])


def test_interval_is_wider_where_less_is_known(ear: OneEar) -> None:
    measured = ear.predicted(uncertainty=np.zeros((2, 31))).interval_db
    assert 0 < measured < ear.predicted().interval_db < ear.predicted(with_coherence=False).interval_db
    assert ear.predicted(0 * LEARNED).interval_db > ear.predicted().interval_db  # of a model that knows no device


def test_what_is_not_finite_is_rejected(ear: OneEar) -> None:
    sums = ear.sums()
    assert len(sums) == N_SUMS
    for place in (0, 40):
        broken = sums.copy()
        broken[place] = np.nan
        assert isinstance(predict(broken, LEARNED, has_coherence=True), NonFiniteFilter)


def test_joint_prediction_keeps_largest_levels(ear: OneEar) -> None:
    """The loudest condition decides what the loudspeaker must play; all other figures are means."""
    quiet = ear.predicted()
    loud = dataclasses.replace(
        quiet, max_gain_db=quiet.max_gain_db + 6, control_rms=4 * quiet.control_rms, amplification_db=2.0
    )
    joint = mean_prediction([quiet, loud], np.array([0.75, 0.25]), ["", ""])
    assert (joint.max_gain_db, joint.control_rms) == (loud.max_gain_db, loud.control_rms)
    assert joint.amplification_db == pytest.approx(0.75 * quiet.amplification_db + 0.25 * 2.0)


def decaying(n_ears: int) -> np.ndarray:
    """Spectra of responses of 8192 samples."""
    rng = np.random.default_rng(8)
    return np.fft.rfft(rng.standard_normal((n_ears, 8192)) * np.exp(-np.arange(8192) / 900), 32_768)


@pytest.mark.parametrize("is_true", [True, False])
def test_sums_of_numpy_and_torch_are_equal(small_case: Case, is_true: bool) -> None:
    rng = np.random.default_rng(2)
    taps = rng.standard_normal((3, SMALL_N_TAPS))
    coherence = rng.uniform(0.1, 1, (3, small_case.n_bins))
    given = small_case.primary, small_case.secondary, taps, small_case.reference_psd, coherence
    found = band_sums(*given, is_true=is_true)
    by_torch = band_sums(*map(torch.from_numpy, given), is_true=is_true)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, by_torch, rtol=1e-9, atol=1e-12 * found.max())


def test_late_share_equals_plain_evaluation() -> None:
    primary, psd = decaying(1), np.random.default_rng(4).uniform(0.5, 2.0, 16_385)
    late = np.fft.irfft(primary[0])
    late[:2048] = 0
    whole, part = (oracle_sums(WIDE_BANDS, psd * np.abs(item) ** 2) for item in (primary[0], np.fft.rfft(late)))
    np.testing.assert_allclose(late_share(primary, psd)[0], part / whole, rtol=1e-9)


def test_learned_values_are_geometric_means() -> None:
    primary, psd = decaying(2), np.ones(16_385)
    coherence = np.random.default_rng(5).uniform(0.5, 1, (2, 16_385))
    power = np.abs(primary) ** 2
    unexplained = (1 - coherence) / coherence * power
    sums = [[oracle_sums(WIDE_BANDS, bin_) for bin_ in bins] for bins in (unexplained, power)]
    uncertainty = np.divide(*sums)
    np.testing.assert_allclose(band_uncertainty(primary, coherence, psd), uncertainty, rtol=1e-9)
    typical, per_share = learn_uncertainty(primary, coherence, psd)
    np.testing.assert_allclose(typical, np.sqrt(uncertainty.prod(0)), rtol=1e-9)
    np.testing.assert_allclose(per_share, typical / np.sqrt(late_share(primary, psd).prod(0)), rtol=1e-9)


def test_predictions_meet_truth_on_held_out_ears(
    ears: list[measured.MeasuredEar], measured_case: Case, true_case: Case
) -> None:
    """Learned on four ears, predicted on two; estimates alone promise decibels that do not come."""
    paths, psd = measured_case.paths(), measured_case.psd()
    coherence = torch.from_numpy(np.stack([ear.coherence for ear in ears]))
    learned = learn_uncertainty(paths.primary[:4], coherence[:4], psd)
    query = paths[4:]
    taps = design_wmmse(query, psd)
    truth = mean_reductions_db(predictions(true_case.paths()[4:], taps, psd))
    believed = mean_reductions_db(predictions(query, taps, psd)) - truth
    with_coherence = mean_reductions_db(predictions(query, taps, psd, coherence[4:], learned)) - truth
    without = mean_reductions_db(predictions(query, taps, psd, learned=learned)) - truth
    assert believed.mean() > 5
    assert np.abs(with_coherence).mean() < 1.0
    assert np.abs(with_coherence).max() < 3
    assert np.abs(without).mean() < 1.5
