"""Simulate what the microphones of an ear record while a chip's filter and controller run, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prime_anc.hardware.running import Machine, run_in_loop
from prime_anc.method.arrays import Real
from prime_anc.method.conventions import SAMPLE_RATE_HZ, SECONDARY_TAPS
from prime_anc.method.errors import InvalidOption

# Output of a filter, of full scale, that counts as clipped.
FULL_SCALE = 0.9999


def recorded(
    outside: Real,
    primary: Real,
    secondary: Real,
    feedback: Real | None = None,
    running: Mapping[str, Any] | None = None,
    *,
    is_wide: bool = True,
    gain: float = 1.0,
) -> tuple[list[Real], float]:
    """Simulate a recording of both microphones.

    Parameters
    ----------
    outside
        Outside sound at the outer microphone, real [n], 48 kHz.
    primary, secondary, feedback
        Impulse responses, real.
    running
        Filter, and controller if it has one, that run, as an export's answer holds them; None: they are off.
    is_wide, gain
        Of the sections' feedback, and of the loudspeaker.

    Returns
    -------
    tuple[list[Real], float]
        x and e, real [n] each, and the share of output samples at full scale.

    Raises
    ------
    InvalidOption
        Filter or controller cannot be run, or not together.
    """
    from scipy.signal import fftconvolve

    # Of the outer and the error microphone, to which filter and controller listen.
    signals = [outside, fftconvolve(outside, primary)[: len(outside)]]
    if running is None:
        return signals, 0.0
    level = gain if running.get("sign", "minus") == "minus" else -gain
    routes = [None if feedback is None else level * feedback, level * secondary]
    coefficients, delays_s = [running["coefficients"]], [running.get("latency_samples", 0.0) / SAMPLE_RATE_HZ]
    if controller := running.get("controller"):
        coefficients.append(controller | {"form": "sos"})
        delays_s.append(1e-6 * controller["latency_us"])
    machines = [Machine(item, is_wide=is_wide) for item in coefficients]
    each = list(range(len(machines)))
    # With a feedback path, the filter's microphone picks up the controller too.
    groups = [[n] for n in each] if feedback is None else [each]
    if feedback is not None and len({machine.sample_rate_hz for machine in machines}) > 1:
        raise InvalidOption("with a feedback path, export the filter at the controller's rate (--rate)")
    clipped = 0.0
    for group in groups:
        rate_hz = machines[group[0]].sample_rate_hz
        loop = [[_in_loop(routes[i], rate_hz, delays_s[j]) for j in group] for i in group]
        sounds = [_moved(signals[n], SAMPLE_RATE_HZ, rate_hz) for n in group]
        outputs = run_in_loop([machines[n] for n in group], sounds, loop)
        for n, output in zip(group, outputs, strict=True):
            if coefficients[n].get("scaling"):
                clipped = max(clipped, float(np.mean(np.abs(output) >= FULL_SCALE)))
            played = _moved(output, rate_hz, SAMPLE_RATE_HZ, delays_s[n])[: len(outside)]
            for i, route in enumerate(routes):
                if route is not None:
                    signals[i] = signals[i] - fftconvolve(played, route)[: len(outside)]
    return signals, clipped


def _in_loop(response: Real | None, rate_hz: float, delay_s: float) -> Real | None:
    """Sample a path within a loop at another rate, cut to SECONDARY_TAPS samples of 48 kHz."""
    if response is None:
        return None
    cut = response[:SECONDARY_TAPS]
    late = _moved(np.pad(cut, (0, 2 * SECONDARY_TAPS - len(cut))), SAMPLE_RATE_HZ, rate_hz, delay_s)
    return late[: len(late) // 2] * (SAMPLE_RATE_HZ / rate_hz)


def _moved(signal: Real, from_hz: float, to_hz: float, delay_s: float = 0.0) -> Real:
    """Convert a signal to another rate, later by a delay, as if it were periodic."""
    n = round(len(signal) * to_hz / from_hz)
    spectrum = np.fft.rfft(signal)
    turns = np.arange(len(spectrum)) * (delay_s * from_hz / len(signal))
    return np.fft.irfft(spectrum * np.exp(-2j * np.pi * turns), n) * (n / len(signal))
