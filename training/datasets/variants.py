"""Three variants of a measured secondary path, for wear, movement and tolerance.

The paper evaluates "gain/delay and spectral/tail variants" without values. Here they are

- ``gain_delay``: gain U(-3, 3) dB and one sample of extra delay,
- ``tilt``: a smooth tilt over log frequency, -t dB at 20 Hz to +t dB at 20 kHz, t ~ U(-3, 3),
- ``tail``: everything after the first millisecond scaled by U(0.5, 1.5).

The primary path is unchanged. Parameters are drawn per listener and ear, and rows record them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prime_anc.method.arrays import minimum_phase_response
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import Condition, Float64, PathPair, named_seed

MAX_GAIN_DB = 3.0
EXTRA_DELAY_SAMPLES = 1
MAX_TILT_DB = 3.0
TILT_RANGE_HZ = (20.0, 20_000.0)
TAIL_START_SAMPLES = SAMPLE_RATE_HZ // 1000
TAIL_SCALES = (0.5, 1.5)
_TILT_N_FFT = 65_536  # eight times the path: the cepstrum of so gentle a slope has decayed long before


def secondary_variants(pair: PathPair, seed: int) -> list[PathPair]:
    """Make the three variants of an original pair, in the order gain_delay, tilt, tail.

    Parameters
    ----------
    pair
        An original.
    seed
        Seed of the run; listener and ear are mixed in, so that draws are independent of the folder.

    Returns
    -------
    list[PathPair]
        Pairs with the same primary, a secondary of the same length and the drawn parameters in `variant`.
    """
    generator = np.random.default_rng(named_seed(seed, pair.listener, pair.ear))
    gain_db = float(generator.uniform(-MAX_GAIN_DB, MAX_GAIN_DB))
    tilt_db = float(generator.uniform(-MAX_TILT_DB, MAX_TILT_DB))
    tail_scale = float(generator.uniform(*TAIL_SCALES))
    delayed = np.pad(pair.secondary, (EXTRA_DELAY_SAMPLES, 0))[: pair.secondary.size] * 10 ** (gain_db / 20)
    scaled = pair.secondary.copy()
    scaled[TAIL_START_SAMPLES:] *= tail_scale
    gain_delay = {"gain_db": gain_db, "extra_delay_samples": float(EXTRA_DELAY_SAMPLES)}
    variants: dict[Condition, tuple[Float64, dict[str, float]]] = {
        "gain_delay": (delayed, gain_delay),
        "tilt": (with_tilt(pair.secondary, tilt_db), {"tilt_db": tilt_db}),
        "tail": (scaled, {"tail_scale": tail_scale}),
    }
    return [
        replace(pair, condition=name, secondary=secondary, variant=drawn)
        for name, (secondary, drawn) in variants.items()
    ]


def with_tilt(response: Float64, tilt_db: float) -> Float64:
    """Tilt a response's magnitude [n] smoothly over log frequency, keeping its length.

    ``G(f) = -tilt_db cos(pi u)`` dB, u running from 0 at 20 Hz to 1 at 20 kHz over log frequency and held beyond: flat
    at both ends, monotone between, 0 dB at the geometric mean (632 Hz). The filter is minimum-phase, so that the path
    stays causal and the phase changes as with an acoustic cause.
    """
    low_hz, high_hz = TILT_RANGE_HZ
    frequency_hz = np.fft.rfftfreq(_TILT_N_FFT, 1 / SAMPLE_RATE_HZ)
    position = np.log(np.maximum(frequency_hz, low_hz) / low_hz) / np.log(high_hz / low_hz)
    log_magnitude = -np.cos(np.pi * np.clip(position, 0, 1)) * tilt_db * np.log(10) / 20
    spectrum = minimum_phase_response(log_magnitude)
    return np.fft.irfft(spectrum * np.fft.rfft(response, _TILT_N_FFT))[: response.size]
