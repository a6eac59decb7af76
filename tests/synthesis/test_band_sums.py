"""Band sums of NumPy and torch, and what stands in for a missing coherence."""

import numpy as np
import pytest
import torch

from synthesis.bands import WIDE_BANDS
from synthesis.predict import band_sums
from synthesis.start.wiener import design_wmmse
from synthesis.support_statistics import band_uncertainty, late_share, learn_uncertainty
from tests.oracles import measured
from tests.oracles.octave_bands import band_sums as oracle_sums
from tests.synthesis.cases import SMALL_N_TAPS, Case, mean_reductions_db, predictions


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
