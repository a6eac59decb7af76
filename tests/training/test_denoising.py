"""Denoised secondary estimates: what must not change, what must, and whether it does on decays like an ear's."""

import numpy as np
import pytest
import torch
from torch import Tensor

from synthesis.denoising import split_into_bands
from training.datasets.path_pairs import DatasetError
from training.denoising import DecayPrior

N_TAPS = 1024


def decays(n: int, seed: int) -> Tensor:
    """Responses that end the sooner the higher the frequency: 100 Hz in 200 samples, 5 kHz in 20."""
    rng = np.random.default_rng(seed)
    lag = np.arange(N_TAPS)
    low = np.cos(2 * np.pi * 100 * lag / 48000) * np.exp(-lag / 200)
    high = np.cos(2 * np.pi * 5000 * lag / 48000) * np.exp(-lag / 20)
    levels = 10 ** (rng.normal(0, 2, (n, 2)) / 20)
    return torch.from_numpy(levels @ np.stack([0.2 * low, high]))


def white(n: int, level: float, seed: int) -> Tensor:
    return level * torch.from_numpy(np.random.default_rng(seed).standard_normal((n, N_TAPS)))


def error_db(estimates: Tensor, truth: Tensor) -> float:
    return float(10 * torch.log10((estimates - truth).square().sum() / truth.square().sum()))


def test_an_estimate_with_no_more_late_power_than_the_support_has_stays_as_it_is() -> None:
    support = decays(7, seed=2)
    prior = DecayPrior.fit(support)
    quiet = 0.3 * support  # below the support's mean in every band
    torch.testing.assert_close(prior.denoise(quiet), quiet, rtol=0, atol=1e-13)  # rounding of float64 transforms
    # A loud one has more late power than the support has on average; what that costs stays within the late part.
    late = support[:, -N_TAPS // 4 :].square().sum() / support.square().sum()
    assert error_db(prior.denoise(support), support) < float(10 * torch.log10(late))


def test_noise_falls_by_what_an_oracle_would_take_away() -> None:
    prior = DecayPrior.fit(decays(7, seed=3))
    truth, noise = decays(20, seed=4), white(20, 0.01, seed=5)
    denoised = prior.denoise(truth + noise)
    before, after = error_db(truth + noise, truth), error_db(denoised, truth)
    assert after < before - 6
    # The ideal gains, which know every true response, gain no more than 3 dB beyond.
    bands, noisy = split_into_bands(truth), split_into_bands(truth + noise)
    ideal = bands.square() / (bands.square() + split_into_bands(noise).square().mean((0, -1), keepdim=True))
    oracle = (ideal * noisy).sum(1)[:, :N_TAPS]
    assert after < error_db(oracle, truth) + 3


def test_late_noise_goes_and_the_more_of_it_the_more_goes() -> None:
    prior = DecayPrior.fit(decays(7, seed=6))
    truth, noise = decays(1, seed=7), white(1, 1.0, seed=8)
    late = slice(N_TAPS // 2, N_TAPS)
    left = [
        float((prior.denoise(truth + level * noise) - truth)[:, late].square().sum() / level**2)
        for level in (0.01, 0.1, 1.0)
    ]
    assert left == sorted(left, reverse=True)
    assert left[0] < 0.2 * float(noise[:, late].square().sum())


def test_an_estimate_does_not_depend_on_its_batch_and_keeps_its_type() -> None:
    prior = DecayPrior.fit(decays(5, seed=9))
    noisy = decays(4, seed=10) + white(4, 0.01, seed=11)
    torch.testing.assert_close(prior.denoise(noisy)[2:3], prior.denoise(noisy[2:3]), rtol=0, atol=1e-14)
    assert prior.denoise(noisy.float()).dtype == torch.float32


def test_one_person_is_a_support_and_silence_stays_silent() -> None:
    prior = DecayPrior.fit(decays(1, seed=12))
    assert bool((prior.denoise(torch.zeros(2, N_TAPS)) == 0).all())
    silent = DecayPrior.fit(torch.zeros(1, N_TAPS))
    assert bool(torch.isfinite(silent.denoise(white(1, 1.0, seed=13))).all())


def test_unusable_responses_are_refused() -> None:
    prior = DecayPrior.fit(decays(2, seed=14))
    with pytest.raises(DatasetError, match="estimates of 512 taps, expected 1024"):
        prior.denoise(torch.ones(1, 512))
    for wrong in (torch.ones(8), torch.ones(0, 8), torch.full((1, 8), torch.nan)):
        with pytest.raises(DatasetError, match="denoising: found responses of shape"):
            DecayPrior.fit(wrong)
