"""Band powers and uncertainties of one ear against the reference's sums."""

import numpy as np
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu.prediction import Predictor
from synthesis.estimate_uncertainty import expected_uncertainty
from synthesis.noise_reduction import COHERENCE_FLOOR
from synthesis.octave_bands import WIDE_BANDS, band_matrix
from synthesis.path_ratio import projected_ratio_fir, regularised_ratio
from tests.synthesis.cases import Case


def test_powers_are_the_references(case: Case) -> None:
    paths, psd = case.paths(), case.psd()
    taps = projected_ratio_fir(regularised_ratio(paths))
    membership = band_matrix(WIDE_BANDS, DESIGN_N_FFT)
    response = torch.fft.rfft(taps, n=DESIGN_N_FFT)
    disturbance = (psd * paths.primary.abs().square()) @ membership
    residual = (psd * (paths.primary - paths.secondary * response).abs().square()) @ membership
    gain = response.abs().square()
    own, single, single_psd = Predictor(), case.paths(torch.float32), case.psd(torch.float32)
    for row in range(paths.batch_size):
        primary, secondary, power = single.primary[row].numpy(), single.secondary[row].numpy(), single_psd.numpy()
        per_bin, per_band = own.disturbance(primary, power)
        np.testing.assert_allclose(per_bin, psd * paths.primary[row].abs().square(), rtol=2e-6)
        np.testing.assert_allclose(per_band, disturbance[row], rtol=2e-6)
        found = own.residual(primary, secondary, power, taps[row].float().numpy())
        # What is left is a difference: single precision leaves 6e-8 of the disturbance's amplitude in it.
        np.testing.assert_allclose(found[0], residual[row], rtol=1e-4, atol=1e-12 * disturbance[row].max().item())
        np.testing.assert_allclose(found[1:], (gain[row].amax(), psd @ gain[row]), rtol=2e-6)


def test_unexplained_power_is_the_references(case: Case) -> None:
    rng = np.random.default_rng(0)
    coherence = rng.uniform(
        -0.1, 1.1, (len(case.primary), case.n_bins)
    )  # and what estimates may give beyond 0 and 1
    known = np.clip(coherence, COHERENCE_FLOOR, 1)
    power = case.reference_psd * np.abs(case.primary) ** 2
    expected = ((1 - known) / known * power) @ band_matrix(WIDE_BANDS, DESIGN_N_FFT).numpy()
    own = Predictor()
    for row, primary in enumerate(case.paths(torch.float32).primary.numpy()):
        per_bin, _ = own.disturbance(primary, case.psd(torch.float32).numpy())
        found = own.unexplained(per_bin, coherence[row].astype(np.float32))
        np.testing.assert_allclose(found, expected[row], rtol=1e-5)


def test_expected_uncertainty_is_the_references(case: Case) -> None:
    learned = torch.stack((torch.logspace(-3, -1, 31), torch.logspace(1, -1, 31))).double()
    expected = expected_uncertainty(case.paths(), learned, case.psd())
    own = Predictor()
    for row, primary in enumerate(case.paths(torch.float32).primary.numpy()):
        psd = case.psd(torch.float32).numpy()
        _, per_band = own.disturbance(primary, psd)
        found = own.expected_uncertainty(primary, psd, per_band, learned.numpy())
        # A late part 60 dB down carries single precision's rounding of the whole response. Measured: 6e-6.
        np.testing.assert_allclose(found, expected[row], rtol=1e-4)
