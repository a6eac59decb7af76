"""The adaptive references against a literal sample-by-sample twin, the least-squares solution and their rules."""

import numpy as np
import pytest
import torch

from prime_anc.method.bands import NR_BANDS, edges_hz
from prime_anc.method.paths import AcousticPaths
from training.baselines.adaptive import (
    ADAPTATION_STREAM,
    FxLms,
    Schedule,
    WeightedFxLms,
    band_weighting,
)

N_TAPS = 24


def decaying(seed, n_samples, decay, delay=0):
    response = np.random.default_rng(seed).standard_normal(n_samples) * np.exp(-np.arange(n_samples) / decay)
    return np.concatenate((np.zeros(delay), response))


@pytest.fixture(scope="module")
def primary():
    """Longer than any filter of 24 taps can follow, so that some error remains for the weighting to share out."""
    return decaying(1, 60, 12, delay=9)


@pytest.fixture(scope="module")
def secondary():
    return decaying(2, 40, 4, delay=3)


def as_paths(*pairs, dtype=torch.float64):
    stacked = [torch.from_numpy(np.stack(responses)) for responses in zip(*pairs, strict=True)]
    return AcousticPaths.from_impulse_responses(*stacked).to(dtype)


def twin(x, p, s, g, n_taps, step, normalised):
    """The textbook loop: unweighted error, then both weighted; every sum from its definition."""
    filtered = np.convolve(np.convolve(x, s), g)[: x.size]
    disturbance = np.convolve(x, p)[: x.size]
    energy = n_taps * np.sum(np.convolve(s, g) ** 2)
    x_now, filtered_now, y, e = np.zeros(n_taps), np.zeros(n_taps), np.zeros(s.size), np.zeros(g.size)
    w = np.zeros(n_taps)
    for n in range(x.size):
        for history, newest in ((x_now, x[n]), (filtered_now, filtered[n])):
            history[1:] = history[:-1].copy()
            history[0] = newest
        y[1:], y[0] = y[:-1].copy(), w @ x_now
        e[1:], e[0] = e[:-1].copy(), disturbance[n] - s @ y
        mu = step / (filtered_now @ filtered_now + 1e-3 * energy) if normalised else step / energy
        w += mu * (g @ e) * filtered_now
    return w


def white_noise_reduction_db(p, s, taps):
    """Mean over bands, of white noise."""
    f = np.fft.rfftfreq(8192, 1 / 48_000)
    before, secondary, response = (np.fft.rfft(item, 8192) for item in (p, s, taps))
    powers = np.abs(np.stack((before, before - secondary * response))) ** 2
    bands = [(f >= low) & (f < high) for low, high in map(edges_hz, NR_BANDS)]
    return np.mean([10 * np.log10(np.divide(*powers[:, band].sum(-1))) for band in bands])


@pytest.mark.parametrize("normalised", [False, True])
def test_it_is_textbook_loop_sample_by_sample(normalised, primary, secondary):
    """Float64 sums in another order, over 6000 steps, differ by rounding only. Two intervals of three blocks."""
    step = 0.001  # slow enough that the second interval still improves, so that its filter is the one kept
    schedule = Schedule(step=step, interval_s=1 / 16, cap_s=1 / 8)
    chosen = FxLms(schedule, n_taps=N_TAPS, seed=3, normalised=normalised)
    control_filter = chosen.design(as_paths((primary, secondary)))
    x = np.random.default_rng([3, ADAPTATION_STREAM]).standard_normal(6000)
    expected = twin(x, primary, secondary, band_weighting(), N_TAPS, step, normalised)
    np.testing.assert_allclose(control_filter.taps[0].numpy(), expected, atol=1e-10 * np.abs(expected).max())


def test_step_size_is_halved_until_useful(primary, secondary):
    """Patience begins anew with each halving: it would otherwise end before the first useful second."""
    schedule = Schedule(step=400.0, interval_s=1, cap_s=30, patience=2)
    control_filter = FxLms(schedule, n_taps=N_TAPS).design(as_paths((primary, secondary)))
    assert white_noise_reduction_db(primary, secondary, control_filter.taps[0].numpy()) > 3


@pytest.fixture(scope="module")
def noises():
    """1.5 s of white noise and of the same with 12 dB per octave off from 300 Hz: shorter than an adaptation."""
    white = np.random.default_rng(9).standard_normal(72_000)
    f = np.fft.rfftfreq(white.size, 1 / 48_000)
    return np.stack((white, np.fft.irfft(np.fft.rfft(white) / (1 + (f / 300) ** 2))))


def test_weighted_fxlms_makes_filter_per_path_and_noise(primary, secondary, noises):
    """Each adapts for as long as the schedule says, whatever the length of the noise, and is of use on it."""
    other = (decaying(7, 60, 12, delay=9), decaying(8, 40, 4, delay=3))
    paths = as_paths((primary, secondary), other)
    chosen = WeightedFxLms(Schedule(interval_s=2.5, cap_s=5, patience=4), n_taps=N_TAPS)
    taps = chosen.design_for(paths, noises)
    assert taps.shape == (2, 2, N_TAPS)
    assert white_noise_reduction_db(primary, secondary, taps[0, 0].numpy()) > 3
    assert not torch.allclose(taps[0, 0], taps[0, 1])
    # A transform of one item and of two may round differently.
    torch.testing.assert_close(chosen.design_for(paths[1:], noises[1:])[0, 0], taps[1, 1], rtol=1e-9, atol=1e-12)
