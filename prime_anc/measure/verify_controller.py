"""Measure a feedback controller that runs beside the filter.

With both, e (1 + S K) = (P - S W) x. A secondary path that is louder by g and later by tau, and a controller that is
louder by k, leave

    H_off - H_on = g S W exp(-j omega tau) + k g S K H_on exp(-j omega tau),

which is linear in g and k g. What k g finds is undone in e, so that `verify` sees the filter alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prime_anc.measure.estimate import convolved
from prime_anc.measure.verify.blocks import WINDOW, StateTake, transfers
from prime_anc.measure.verify.diagnosis import REFIT_SHARE, Deviation
from prime_anc.measure.verify.measurement import (
    HOWL_BAND_DB,
    MODEL_ERROR,
    NOT_RUNNING_GAIN,
    Verification,
    verify,
)
from prime_anc.method.arrays import Complex, Real
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.loops.controller import Controller, judge
from prime_anc.method.methods import Path, spectrum
from prime_anc.method.types import Complex64, Float32, Loop

# Range of the fit; above, controllers do little.
FIT_HZ = (40.0, 5000.0)
DELAYS = np.arange(-8.0, 8.01, 0.25)
# Controllers below this share of their gain are off; level errors above this are reported.
OFF_GAIN, LEVEL_OFF_DB = 0.2, 1.5
# Error of a gain over the largest that the rest of its fit allows: up to 0.15 with the filter that was sent, 0.23 with
# one that was designed without the controller (104 recordings of six measured ears).
SHARE_OF_DOUBT = 0.25
# Above this another filter runs, as sections in place of the taps that were sent (2.5); the sent one leaves 0.3.
MOST_DOUBT = 1.0
# Largest 1 / |1 + L| of a loop that is not near howling; designs keep 6 dB.
NEAR_HOWLING_DB = 9.0


@dataclass(frozen=True, eq=False)
class MeasuredController:
    """A measured controller."""

    # Gain over the controller that was sent, negative for a reversed polarity.
    gain: float
    # Its loop gain over the predicted one: also with what the loudspeaker has changed.
    loop_gain: float
    # Whether the takes show what it does: the filter is the one that was sent, and the fit leaves little.
    is_known: bool
    # Loop as it is now.
    loop: Loop


def verify_both(
    recordings: Sequence[StateTake],
    taps: Float32 | Complex64,
    controller: Controller,
    primary: Path,
    secondary: Path,
    plant: Path,
    feedback: Path | None = None,
) -> tuple[Verification, MeasuredController]:
    """Measure filter and controller.

    Parameters
    ----------
    recordings, taps, primary, secondary, feedback
        As of `verify`; the takes `on` have both running.
    controller
        Controller that was designed.
    plant
        Secondary path without the delay of the filter's chain.

    Returns
    -------
    tuple[Verification, MeasuredController]
        The filter, with the noise reduction of both; and the controller.
    """
    both = verify(recordings, taps, primary, secondary, feedback)
    fed_back = 0.0 if feedback is None else spectrum(primary) * spectrum(feedback)
    path = spectrum(plant) - fed_back
    loop = path * controller.on_bins
    played = (spectrum(secondary) - fed_back) * spectrum(taps)
    found = transfers(recordings, *(np.fft.irfft(item) for item in (spectrum(primary), played, loop)))
    noise = found.noise + MODEL_ERROR * np.abs(found.off) ** 2
    gain, loop_gain, delay, doubt = _fitted(found.difference, found.played, found.returned, noise)
    turned = np.exp(-2j * np.pi / DESIGN_N_FFT * delay * np.arange(len(loop)))
    undone = np.fft.irfft(loop_gain * loop * turned)
    without = [_undone(item, undone) if item.is_on else item for item in recordings]
    alone = verify(without, taps, primary, secondary, feedback)
    names = (
        "noise_reduction_db",
        "heard_reduction_db",
        "mean_noise_reduction_db",
        "amplification_db",
        "interval_db",
        "howl_db",
        "howl_hz",
    )
    measured = replace(alone, **{name: getattr(both, name) for name in names})
    of_speaker = gain if abs(gain) >= NOT_RUNNING_GAIN else 1.0
    now = judge(controller, loop_gain * turned * path)
    is_known = (
        alone.unexplained_share <= REFIT_SHARE
        and both.mean_noise_reduction_db > -HOWL_BAND_DB
        and doubt <= MOST_DOUBT
        and SHARE_OF_DOUBT * doubt <= max(abs(loop_gain), OFF_GAIN)
    )
    return measured, MeasuredController(loop_gain / of_speaker, loop_gain, is_known, now)


def diagnose_controller(found: MeasuredController) -> list[Deviation]:
    """List the deviations of a controller."""
    gain = found.gain
    if not found.is_known:
        text = "the takes do not show what the controller does: verify the filter that ran, as it was exported"
        return [Deviation("controller_unknown", text)]
    if abs(gain) < OFF_GAIN:
        return [Deviation("controller_off", "the controller adds nothing: check that it runs, and its channels")]
    deviations = []
    if gain < 0:
        text = "the controller runs with the opposite sign: load the trimmed one, or negate its gain"
        deviations.append(Deviation("controller_inverted", text))
    level_db = 20 * float(np.log10(abs(gain)))
    if abs(level_db) > LEVEL_OFF_DB:
        more = "louder" if level_db > 0 else "quieter"
        text = f"the controller is {abs(level_db):.1f} dB {more} than designed: load the trimmed one"
        deviations.append(Deviation("controller_level_off", text, level_db))
    if not found.loop.stable or found.loop.max_sensitivity_db > NEAR_HOWLING_DB:
        text = f"the controller's loop amplifies by {found.loop.max_sensitivity_db:.0f} dB near "
        text += f"{found.loop.nearest_hz:.0f} Hz: lower its gain before the earphone is worn otherwise"
        deviations.append(Deviation("near_howling", text, found.loop.max_sensitivity_db))
    return deviations


def _fitted(
    difference: Complex, of_filter: Complex, of_controller: Complex, error: Real
) -> tuple[float, float, float, float]:
    """Fit two real gains and a delay by least squares, octaves alike; and the second one's largest error.

    That error is the one that explains what the fit leaves, as another filter than the one that was sent would.
    """
    hz = np.arange(len(difference)) * (SAMPLE_RATE_HZ / WINDOW)
    used = (hz >= FIT_HZ[0]) & (hz <= FIT_HZ[1])
    weight = 1 / np.sqrt(error[used] * hz[used])
    columns = weight * np.stack((of_filter[used], of_controller[used]))
    target = weight * difference[used]
    found = []
    for delay in DELAYS:
        turned = columns * np.exp(-2j * np.pi / SAMPLE_RATE_HZ * delay * hz[used])
        parts = np.concatenate((turned.real, turned.imag), 1)
        wanted = np.concatenate((target.real, target.imag))
        gains = np.linalg.lstsq(parts.T, wanted, rcond=None)[0]
        left = float(np.sum((wanted - gains @ parts) ** 2))
        filters, controllers = parts
        alone = controllers - filters * (filters @ controllers / max(filters @ filters, 1e-300))
        doubt = float(np.sqrt(left / max(alone @ alone, 1e-300)))
        found.append((left, float(gains[0]), float(gains[1]), float(delay), doubt))
    return min(found)[1:]


def _undone(take: StateTake, undone: Real) -> StateTake:
    """Return a take whose e is that without the controller."""
    return replace(take, e=np.asarray(take.e, np.float64) + convolved(np.asarray(take.e, np.float64), undone))
