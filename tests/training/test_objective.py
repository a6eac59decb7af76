"""The objective agrees with a direct float64 evaluation of Eq. 6 and differentiates."""

import numpy as np
import pytest
import torch
from scipy.signal import ShortTimeFFT, fftconvolve

from prime_anc.method.bands import AMP_BANDS, edges_hz
from training.config import load_config
from training.datasets.noise import reference_psd, simulated_noise
from training.datasets.simulated import simulate_listeners
from training.objective import (
    CLIP_SAMPLES,
    FrequencyDomainObjective,
    TimeDomainObjective,
    TruePaths,
)


@pytest.fixture(scope="module")
def noise():
    return simulated_noise(0)


@pytest.fixture(scope="module")
def true_paths():
    pairs = simulate_listeners(1, 0).pairs
    stacked = [np.stack([getattr(pair, name) for pair in pairs]) for name in ("primary", "secondary")]
    return TruePaths(*(torch.from_numpy(item).float() for item in stacked))


def decaying_taps(n_filters):
    generator = torch.Generator().manual_seed(3)
    envelope = torch.exp(-torch.arange(2048) / 60)
    return 0.3 * torch.randn(n_filters, 2048, generator=generator) * envelope


def test_time_domain_loss_equals_direct_evaluation(noise, true_paths):
    """Convolution by SciPy, STFT by SciPy, every term written out. Float32 against float64: 1e-3 dB."""
    config = load_config("prime").objective
    objective = TimeDomainObjective(config, noise, torch.device("cpu"))
    taps, correction = decaying_taps(1), torch.linspace(-1, 1, 101)[None]
    first = TruePaths(true_paths.primary[:1], true_paths.secondary[:1])
    found = objective(first, taps, correction, np.random.default_rng(5)).item()

    rng = np.random.default_rng(5)
    which, start = int(rng.integers(len(noise.signals))), int(rng.integers(4 * 48_000 - CLIP_SAMPLES + 1))
    clip = noise.signals[which, start : start + CLIP_SAMPLES]
    p, s, w = (item[0].double().numpy() for item in (first.primary, first.secondary, taps))
    d = fftconvolve(clip, p)[:CLIP_SAMPLES]
    e = d - fftconvolve(clip, fftconvolve(s, w))[:CLIP_SAMPLES]
    window = np.hanning(8193)[:-1]
    stft = ShortTimeFFT(window, hop=2048, fs=48_000)
    inside = range(4096 // 2048, 4096 // 2048 + (CLIP_SAMPLES - 8192) // 2048 + 1)
    reductions = []
    for n in AMP_BANDS:
        low, high = edges_hz(n)
        powers = [
            (
                np.abs(stft.stft(signal, p0=inside.start, p1=inside.stop)[(stft.f >= low) & (stft.f < high)]) ** 2
            ).sum()
            for signal in (d, e)
        ]
        reductions.append(10 * np.log10(powers[0] / powers[1]))
    worst = np.sort(np.maximum(-np.array(reductions), 0))[::-1]
    gain_db = 20 * np.log10(np.abs(np.fft.rfft(w, 32_768)))
    expected = (
        -np.mean(reductions[:21])
        + 0.25 * (worst[0] + worst[1] + 0.3 * worst[2]) / 2.3
        + 0.02 * np.mean(np.maximum(gain_db - 24, 0) ** 2)
        + 1e-3 * np.mean(correction.numpy() ** 2)
        + 1e-3 * np.mean(np.diff(w, 2) ** 2)
    )
    assert found == pytest.approx(expected, abs=1e-3)


def test_silent_filter_costs_risk_margin(noise, true_paths):
    """On the reference spectrum; a silent filter reduces nothing in any band."""
    config = load_config("prime-log").objective
    frequency = FrequencyDomainObjective(config, torch.from_numpy(reference_psd(noise)).float())
    correction = torch.zeros(2, 5)
    silent = frequency(true_paths, torch.zeros(2, 2048), correction, np.random.default_rng(0))
    loud = frequency(true_paths, decaying_taps(2), correction, np.random.default_rng(0))
    assert config.risk_margin_db > config.outer_margin_db
    assert silent.item() == pytest.approx(config.risk_weight * config.risk_margin_db, abs=1e-5)
    assert loud.item() > silent.item() + 1.0
