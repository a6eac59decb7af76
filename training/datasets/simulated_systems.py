"""Simulated systems that are no earphone of ours: ducts, rooms, windows, headrests and headsets.

Each is drawn in the continuous domain of its kind, sampled at 8 to 48 kHz, given the noise of a measurement and brought
to 48 kHz as a reader of files would. What they share with real systems is what makes designs hard: delays, modes with
gaps between them, band-passes, and bands in which a system is silent because its converter ends below them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import MAX_PATH_SAMPLES, Float64

_NOISE_DB = (-60.0, -40.0)  # of a measurement, below the response's RMS over frequency
_SPEED = 343.0
_OVERSAMPLING = 8  # in frequency, so that what rings longer than the response does not fold into it

_Spectrum = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class SimulatedSystem:
    """A pair of paths, impulse responses at 48 kHz, float64 [n <= 8192].

    rate_hz is that at which they were measured; above its half they hold nothing but what resampling leaves.
    """

    # A name in KINDS.
    kind: str
    rate_hz: int
    primary: Float64
    secondary: Float64


def simulate_system(number: int, seed: int = 0) -> SimulatedSystem:
    """Draw a system.

    Parameters
    ----------
    number
        Of the system, which depends on it and the seed alone; kinds take turns.
    seed
        Of all systems.

    Returns
    -------
    SimulatedSystem
        With causal paths whose secondary path is the faster one, as in a system that was built to work.
    """
    kind, (draw, rates_hz) = list(KINDS.items())[number % len(KINDS)]
    rng = np.random.default_rng([seed, number])
    rate_hz = int(rng.choice(rates_hz))
    n = MAX_PATH_SAMPLES * rate_hz // SAMPLE_RATE_HZ
    hz: Float64 = np.fft.rfftfreq(_OVERSAMPLING * n, 1 / rate_hz).astype(np.float64)
    both = []
    for spectrum in draw(hz, rng):
        response = np.fft.irfft(spectrum * _converter(hz, rate_hz))[:n]
        level = np.sqrt(np.sum(response**2) / n) * 10 ** (rng.uniform(*_NOISE_DB) / 20)
        response = response + level * rng.standard_normal(n)
        ratio = Fraction(SAMPLE_RATE_HZ, rate_hz)
        both.append(resample_poly(response, ratio.numerator, ratio.denominator)[:MAX_PATH_SAMPLES])
    return SimulatedSystem(kind, rate_hz, *both)


def _duct(hz: Float64, rng: np.random.Generator) -> tuple[_Spectrum, _Spectrum]:
    """A tube that reflects at both ends: the reference microphone near one, loudspeaker and error microphone ahead."""
    length = rng.uniform(1.5, 5)
    reference, loudspeaker, error = (
        rng.uniform(*each) * length for each in ((0.05, 0.2), (0.5, 0.7), (0.75, 0.95))
    )
    absorbed = rng.uniform(0.02, 0.06) * np.sqrt(hz / 1000 + 0.01)  # nepers per metre
    wave = 2j * np.pi * hz / _SPEED + absorbed
    ends = rng.uniform(0.3, 0.85, (2, 1)) * np.exp(-hz / rng.uniform(800, 3000))

    def between(x: float, y: float) -> _Spectrum:
        near, far = ends[0] * np.exp(-wave * (x + y)), ends[1] * np.exp(-wave * (2 * length - x - y))
        around = ends[0] * ends[1] * np.exp(-2 * wave * length)
        direct, back = np.exp(-wave * abs(x - y)), around * np.exp(wave * abs(x - y))
        return (direct + near + far + back) / (1 - around)

    driven = _high_pass(hz, rng.uniform(30, 90), rng.uniform(0.5, 1.2))
    return between(reference, error), rng.uniform(0.3, 3) * driven * between(loudspeaker, error)


def _room(hz: Float64, rng: np.random.Generator) -> tuple[_Spectrum, _Spectrum]:
    """A loudspeaker that quietens a point in a reverberant room, the reference microphone at the noise's source."""
    late, early = rng.uniform(0.006, 0.012), rng.uniform(0.001, 0.003)
    decay_s = rng.uniform(0.03, 0.12)
    primary = _low_pass(hz, rng.uniform(1000, 5000), 1) * _reverberant(hz, rng, late, decay_s, rng.uniform(-6, 6))
    driven = _high_pass(hz, rng.uniform(40, 120), rng.uniform(0.6, 1.5))
    secondary = driven * _reverberant(hz, rng, early, decay_s, rng.uniform(-12, 0))
    return rng.uniform(0.1, 1) * primary, secondary


def _window(hz: Float64, rng: np.random.Generator) -> tuple[_Spectrum, _Spectrum]:
    """An open window: the noise passes its frame by several ways, a loudspeaker sits in it."""
    late, early = rng.uniform(0.003, 0.006), rng.uniform(0.0008, 0.002)
    ways = rng.uniform(0, 0.002, 6)
    gains = rng.uniform(-0.4, 0.4, 6)
    bent = 1 + (gains[:, None] * np.exp(-2j * np.pi * ways[:, None] * hz)).sum(0)
    primary = _low_pass(hz, rng.uniform(800, 3000), 1) * bent
    primary = primary * _reverberant(hz, rng, late, rng.uniform(0.01, 0.04), -10)
    driven = _high_pass(hz, rng.uniform(80, 200), rng.uniform(0.7, 1.5))
    return primary, rng.uniform(0.5, 2) * driven * _reverberant(hz, rng, early, rng.uniform(0.005, 0.03), -8)


def _headrest(hz: Float64, rng: np.random.Generator) -> tuple[_Spectrum, _Spectrum]:
    """Loudspeakers beside the head in a cabin, microphones ahead of it."""
    early = rng.uniform(0.0003, 0.0008)
    late = early + rng.uniform(0.0005, 0.003)
    decay_s = rng.uniform(0.01, 0.05)
    primary = _reverberant(hz, rng, late, decay_s, rng.uniform(-10, 3))
    driven = _high_pass(hz, rng.uniform(50, 150), rng.uniform(0.6, 1.2)) * _low_pass(
        hz, rng.uniform(4000, 15_000), 2
    )
    return primary, rng.uniform(0.3, 3) * driven * _reverberant(hz, rng, early, decay_s, rng.uniform(-15, -5))


def _headset(hz: Float64, rng: np.random.Generator) -> tuple[_Spectrum, _Spectrum]:
    """An over-ear cup with its driver's and cavity's resonances, which isolates at high frequencies."""
    early = rng.uniform(0.00005, 0.00025)
    late = early + rng.uniform(0.00002, 0.0002)
    isolated = _low_pass(hz, rng.uniform(200, 900), 2)
    cavity = np.prod(
        [_peak(hz, rng.uniform(1500, 9000), rng.uniform(1, 6), rng.uniform(-8, 8)) for _ in range(4)], 0
    )
    leak = _high_pass(hz, rng.uniform(15, 60), rng.uniform(0.5, 1.0))
    scattered = _reverberant(hz, rng, late, rng.uniform(0.001, 0.006), rng.uniform(-25, -12))
    primary = (isolated + 10 ** (rng.uniform(-45, -25) / 20)) * scattered * cavity
    return primary, rng.uniform(0.3, 3) * leak * cavity * np.exp(-2j * np.pi * hz * early)


def _reverberant(
    hz: Float64, rng: np.random.Generator, delay_s: float, decay_s: float, late_db: float
) -> _Spectrum:
    """A direct sound and noise that decays by 60 dB in five times `decay_s`; late_db: its energy over the former's."""
    rate_hz = 2 * hz[-1]
    time = np.arange(2 * (len(hz) - 1)) / rate_hz
    tail = rng.standard_normal(len(time)) * np.exp(-np.log(1000) * time / (5 * decay_s))
    tail *= 10 ** (late_db / 20) / np.linalg.norm(tail)
    tail[0] += 1
    return np.fft.rfft(tail) * np.exp(-2j * np.pi * hz * delay_s)


def _high_pass(hz: Float64, corner_hz: float, q: float) -> _Spectrum:
    s = 1j * hz / corner_hz
    return s**2 / (s**2 + s / q + 1)


def _low_pass(hz: Float64, corner_hz: float, order: int) -> _Spectrum:
    return np.asarray((1 + 1j * hz / corner_hz) ** -float(order), dtype=np.complex128)


def _peak(hz: Float64, centre_hz: float, q: float, gain_db: float) -> _Spectrum:
    gain = 10 ** (gain_db / 40)
    s = np.asarray(1j * hz / centre_hz, dtype=np.complex128)
    return np.asarray((s**2 + s * gain / q + 1) / (s**2 + s / (gain * q) + 1), dtype=np.complex128)


def _converter(hz: Float64, rate_hz: int) -> _Spectrum:
    """Its low-pass below half the rate, and its coupling's high-pass."""
    low = 1 / (1 + (hz / (0.42 * rate_hz)) ** 12)
    return low * np.exp(-2j * np.pi * hz * 4 / rate_hz) * _high_pass(hz, 5.0, 0.7)


# What draws a system's paths, and converters' rates of published systems of the kind.
KINDS: dict[str, tuple[Callable[[Float64, np.random.Generator], tuple[_Spectrum, _Spectrum]], tuple[int, ...]]] = {
    "duct": (_duct, (8000, 16_000)),
    "room": (_room, (8000, 16_000, 44_100)),
    "window": (_window, (8000, 16_000)),
    "headrest": (_headrest, (16_000, 32_000, 48_000)),
    "headset": (_headset, (32_000, 44_100, 48_000)),
}
