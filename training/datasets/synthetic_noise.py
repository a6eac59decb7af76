"""Synthetic noises for training without recordings, and for probes.

Real places differ in spectrum, in lines of rotating machines, in the rate of level changes, and in bandwidth. All of
these are drawn, so that a model sees more variety than four recordings have.
"""

from __future__ import annotations

import numpy as np

from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.noise import N_SAMPLES, NoiseSet, at_target_rms, environment
from training.datasets.path_pairs import Float64, fingerprint

N_KNOTS = 10
SLOPE_DB_PER_OCTAVE = (-8.0, 1.0)
KNOT_SD_DB = 4.0
DEPTH_DB = (0.0, 4.0)
WANDER_HZ = (0.3, 8.0)
# Share of the noises that have lines; these have a tenth to two thirds of the power.
LINES_SHARE = 0.5
NARROW_SHARE = 0.4
# Range of a narrow noise's upper edge.
HIGHEST_HZ = (1500.0, 12_000.0)

AIRPLANE = "airplane_like"
AIRPLANE_LEVELS_DB = (0, 2, 4, 3, 0, -5, -11, -18, -26, -36)
AIRPLANE_HIGHEST_HZ = 8000.0


def synthetic_noise(n: int, seed: int) -> NoiseSet:
    """Generate `n` noises `synthetic_00`, ...: 12 s at 48 kHz, RMS 0.05, determined by (seed, number)."""
    drawn = [_draw(np.random.default_rng([seed, 3, number])) for number in range(n)]
    return NoiseSet(
        names=tuple(f"synthetic_{number:02d}" for number in range(n)),
        signals=np.stack([at_target_rms(item) for item in drawn]),
        n_recordings=n,
        fingerprint=fingerprint([("synthetic", f"{n} {seed}".encode())]),
        is_simulated=True,
    )


def airplane_noise(seed: int) -> Float64:
    """Generate 12 s as in an airplane's cabin, without power above 8 kHz: float64 [576000] at 48 kHz, RMS 0.05."""
    generator = np.random.default_rng([seed, 4])
    band_hz = (0.0, AIRPLANE_HIGHEST_HZ)
    return at_target_rms(environment(generator, AIRPLANE_LEVELS_DB, 0.5, band_hz=band_hz))


def _draw(generator: np.random.Generator) -> Float64:
    slope = generator.uniform(*SLOPE_DB_PER_OCTAVE)
    levels_db = slope * np.arange(N_KNOTS) + generator.normal(0, KNOT_SD_DB, N_KNOTS)
    is_narrow = generator.random() < NARROW_SHARE
    noise = environment(
        generator,
        levels_db.tolist(),
        generator.uniform(*DEPTH_DB),
        wander_hz=_log_uniform(generator, *WANDER_HZ),
        band_hz=(0.0, _log_uniform(generator, *HIGHEST_HZ) if is_narrow else np.inf),
    )
    if generator.random() >= LINES_SHARE:
        return noise
    lines = _harmonics(generator)
    share = generator.uniform(0.1, 0.67)
    return np.sqrt(1 - share) * noise / noise.std() + np.sqrt(share) * lines / lines.std()


def _harmonics(generator: np.random.Generator) -> Float64:
    """Generate up to 20 harmonics of 25 to 400 Hz, falling by 6 dB per octave in the mean: [576000]."""
    fundamental_hz = _log_uniform(generator, 25.0, 400.0)
    time_s = np.arange(N_SAMPLES) / SAMPLE_RATE_HZ
    lines = np.zeros(N_SAMPLES)
    for order in range(1, int(generator.integers(1, 21)) + 1):
        level_db = generator.normal(-20 * np.log10(order), 6.0)
        phase = generator.uniform(0, 2 * np.pi)
        lines += 10 ** (level_db / 20) * np.sin(2 * np.pi * order * fundamental_hz * time_s + phase)
    return lines


def _log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))
