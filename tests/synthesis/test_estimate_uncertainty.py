"""What stands in for a missing coherence: the support's uncertainty, scaled by an estimate's own late part."""

import numpy as np
import torch

from synthesis import prediction
from synthesis.estimate_uncertainty import expected_uncertainty, late_share, learn_uncertainty
from synthesis.noise_reduction import band_uncertainty, predict
from synthesis.octave_bands import WIDE_BANDS, edges_hz
from synthesis.paths import AcousticPaths
from synthesis.wiener import design_wmmse
from tests.oracles import measured
from tests.synthesis.cases import Case

CERTAIN = torch.zeros(31, dtype=torch.float64)


def test_late_share_equals_a_plain_evaluation() -> None:
    rng = np.random.default_rng(4)
    response = rng.standard_normal(8192) * np.exp(-np.arange(8192) / 900)
    psd = rng.uniform(0.5, 2.0, 16_385)
    late = response.copy()
    late[:2048] = 0
    whole_power, late_power = (psd * np.abs(np.fft.rfft(each, 32_768)) ** 2 for each in (response, late))
    frequency = np.arange(16_385) * 48_000 / 32_768
    expected = []
    for n in WIDE_BANDS:
        low, high = edges_hz(n)
        inside = (frequency >= low) & (frequency < high)
        expected.append(late_power[inside].sum() / whole_power[inside].sum())
    paths = AcousticPaths.from_impulse_responses(torch.from_numpy(response)[None], torch.ones(1, 1).double())
    torch.testing.assert_close(
        late_share(paths, torch.from_numpy(psd))[0], torch.tensor(expected).double(), rtol=1e-9, atol=0
    )


def decaying(n_ears: int, n_samples: int = 8192) -> AcousticPaths:
    generator = torch.Generator().manual_seed(8)
    noise = torch.randn(n_ears, n_samples, generator=generator, dtype=torch.float64)
    paths = noise * torch.exp(-torch.arange(n_samples) / 700)
    return AcousticPaths.from_impulse_responses(paths, torch.ones(n_ears, 1, dtype=torch.float64))


def test_learned_are_the_uncertainty_and_its_ratio_to_the_late_share() -> None:
    """Of one support ear, its own."""
    paths, psd = decaying(1), torch.ones(16_385, dtype=torch.float64)
    coherence = 0.5 + 0.5 * torch.rand(1, 16_385, dtype=torch.float64)
    typical, per_share = learn_uncertainty(paths, coherence, psd)
    torch.testing.assert_close(typical[None], band_uncertainty(paths, coherence, psd), rtol=1e-9, atol=0)
    torch.testing.assert_close(per_share * late_share(paths, psd)[0], typical, rtol=1e-9, atol=0)


def test_a_batch_is_told_what_each_ear_is_told() -> None:
    psd = torch.ones(16_385, dtype=torch.float64)
    learned = torch.stack((torch.linspace(0.01, 0.3, 31), torch.full((31,), 5.0))).double()
    for n_samples in (512, 8192):
        paths = decaying(2, n_samples)
        share = late_share(paths, psd).numpy()
        for item, found in enumerate(expected_uncertainty(paths, learned, psd).numpy()):
            expected = prediction.expected_uncertainty(np.ones(31), share[item], n_samples, learned.numpy())
            np.testing.assert_allclose(found, expected, rtol=1e-3)  # the length is found from the response


def test_predictions_without_a_coherence_on_ears_left_out(
    ears: list[measured.MeasuredEar], measured_case: Case, true_case: Case
) -> None:
    """Learned on the first 14 ears, asked on the other 16: within 1.5 dB of the truth in the mean."""
    paths, psd = measured_case.paths(), measured_case.psd()
    coherence = torch.from_numpy(np.stack([ear.coherence for ear in ears]))
    learned = learn_uncertainty(paths[:14], coherence[:14], psd)
    query, truth = paths[14:], true_case.paths()[14:]
    taps = design_wmmse(query, psd)
    scored = predict(truth, taps, psd, uncertainty=CERTAIN).mean_noise_reduction_db
    told = predict(query, taps, psd, uncertainty=expected_uncertainty(query, learned, psd))
    typical = predict(query, taps, psd, uncertainty=learned[0])
    error, plain_error = ((each.mean_noise_reduction_db - scored).abs().mean().item() for each in (told, typical))
    assert error < 1.5
    assert error < plain_error
