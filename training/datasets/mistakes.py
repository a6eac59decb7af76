"""Mistakes in a measurement, simulated where they occur: in the paths or in the recordings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.signal import butter, lfilter, resample_poly

from prime_anc.measure.estimate import GainTake
from prime_anc.method.arrays import Real
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.simulated_calibration import PROBE_GAIN

Responses = tuple[Real, Real]
Takes = list[GainTake]


def high_passed(response: Real, order: int, cutoff_hz: float) -> Real:
    """Apply a leak, a high-pass of an order."""
    return lfilter(*butter(order, cutoff_hz, "highpass", fs=SAMPLE_RATE_HZ), response)


def later(response: Real, n_samples: int) -> Real:
    """Delay a response by samples, keeping its length."""
    return np.pad(response, (n_samples, 0))[: response.size]


def read_as_48_khz(response: Real) -> Real:
    """Return a response recorded at 44.1 kHz as if at 48 kHz."""
    found: Real = resample_poly(response, 147, 160)[: response.size] * (160 / 147)
    return np.pad(found, (0, response.size - found.size))


def ringing(response: Real) -> Real:
    """Add a tail 20 dB below a response that decays by e in 60 ms, as in a small hard box."""
    tail = np.random.default_rng(2).standard_normal(response.size) * np.exp(-np.arange(response.size) / 3000)
    return response + 0.1 * np.linalg.norm(response) / np.linalg.norm(tail) * tail


def _edited(change: Callable[[float, Real, Real], tuple[float, Real, Real]]) -> Callable[[Takes], Takes]:
    """Change the gain, reference and error signal of every take."""
    return lambda takes: [
        GainTake(*change(take.gain, np.array(take.reference), np.array(take.error))) for take in takes
    ]


def _in_secondary(change: Callable[[Real], Real]) -> Callable[[Responses, Responses], Responses]:
    return lambda ear, other: (ear[0], change(ear[1]))


def _declared(factor: float) -> Callable[[Takes], Takes]:
    return _edited(lambda gain, reference, error: (factor * gain, reference, error))


def _turned(level_db: float) -> Callable[[Takes], Takes]:
    """Change a microphone's sensitivity between both states."""
    factor = 10 ** (level_db / 20)
    return _edited(lambda gain, reference, error: (gain, reference, (factor if gain else 1) * error))


def _hiss(signal: Real) -> Real:
    """Replace a signal by converter noise."""
    return 5e-6 * np.random.default_rng(1).standard_normal(signal.size)


def _ended(signal: Real) -> Real:
    return signal * (np.arange(signal.size) < 0.4 * signal.size)


SECONDARY: dict[str, Callable[[Real], Real]] = {
    **{f"{kind} leak, {hz} Hz": partial(high_passed, order=order, cutoff_hz=float(hz))
       for order, kind in ((1, "first-order"), (2, "second-order")) for hz in (200, 300)},
    **{f"{n} sample{'s' * (n > 1)} late": partial(later, n_samples=n) for n in (1, 2, 4)},
    "secondary 30 dB too quiet": lambda s: s * 10**-1.5,
}  # fmt: skip
# Mistakes in the paths of a request, of the ear and of another person; the last is none, since a sensitivity is no
# property of an ear.
REQUEST_MISTAKES: dict[str, Callable[[Responses, Responses], Responses]] = {
    "right": lambda ear, other: ear,
    "secondary inverted": lambda ear, other: (ear[0], -ear[1]),
    "primary inverted": lambda ear, other: (-ear[0], ear[1]),
    "secondary also as primary": lambda ear, other: (ear[1], ear[1]),
    "primary also as secondary": lambda ear, other: (ear[0], ear[0]),
    "secondary 6 dB too quiet": lambda ear, other: (ear[0], ear[1] / 2),
    "secondary 20 dB too quiet": lambda ear, other: (ear[0], ear[1] / 10),
    "primary 200 dB too quiet": lambda ear, other: (ear[0] * 1e-10, ear[1]),
    "paths swapped": lambda ear, other: (ear[1], ear[0]),
    "another person's secondary": lambda ear, other: (ear[0], other[1]),
    **{name: _in_secondary(change) for name, change in SECONDARY.items()},
    "primary 16 samples late": lambda ear, other: (later(ear[0], 16), ear[1]),
    "44.1 kHz as 48 kHz": lambda ear, other: (read_as_48_khz(ear[0]), read_as_48_khz(ear[1])),
    "both times -1e-3": lambda ear, other: (-1e-3 * ear[0], -1e-3 * ear[1]),
}
PATH_MISTAKES = {name: REQUEST_MISTAKES[name] for name in (
    "right", "secondary inverted", *SECONDARY, "primary 16 samples late", "44.1 kHz as 48 kHz",
)} | {"ringing": lambda ear, other: (ear[0], ringing(ear[1]))}  # fmt: skip
TAKE_MISTAKES: dict[str, Callable[[Takes], Takes]] = {
    **{f"declared gain x {factor:g}": _declared(factor) for factor in (0.1, 0.5, 2, 10, 100)},
    **{f"microphone turned by {level_db:+g} dB": _turned(level_db) for level_db in (-3, -1, 1, 3)},
    "microphone inverted": _edited(lambda g, x, e: (g, x, -e if g else e)),
    "states swapped": _edited(lambda g, x, e: (PROBE_GAIN - g, x, e)),
    "channels swapped": _edited(lambda g, x, e: (g, e, x)),
    "dead outer microphone": _edited(lambda g, x, e: (g, _hiss(x), e)),
    "dead error microphone": _edited(lambda g, x, e: (g, x, _hiss(e))),
    "clipped": _edited(lambda g, x, e: (g, x, np.clip(e, -2.5 * e.std(), 2.5 * e.std()))),
    "probe ends before half": _edited(lambda g, x, e: (g, _ended(x), _ended(e))),
    "takes of 0.2 s": _edited(lambda g, x, e: (g, x[9600:19_200], e[9600:19_200])),
}  # fmt: skip
