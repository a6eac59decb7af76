"""Convert responses of any rate and start to samples at 48 kHz from time zero.

A response of samples h[m] at rate r, the first at time t0, becomes

    g[n] = r / 48000 sum_m h[m] k(n / 48000 - t0 - m / r),

with a windowed sinc k that cuts off at the lower of both Nyquist frequencies. The factor preserves the transfer
function: without it a response at 44.1 kHz comes out 0.7 dB too loud, one at 192 kHz 12 dB too quiet.

The sinc is symmetric, so a response that begins with large samples acquires others before zero. A filter cannot have
them, and in a loop they cannot be delayed: there the causal response with the nearest transfer function is used. Of
a rate whose band ends below the audible one, that leaves up to 1 % of the response above it, which would be taken for
sound: primary and secondary path are delayed instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.errors import FileError
from prime_anc.method.conventions import SAMPLE_RATE_HZ

Float64 = NDArray[np.float64]

RATES_HZ = (4000.0, 768_000.0)
# Zero crossings of the sinc on either side.
N_CROSSINGS = 32
# Rates below which primary and secondary path are delayed until the sinc's beginning is kept: the audible bands end at
# 22.4 kHz.
DELAYED_BELOW_HZ = 44_000.0
# Shape of the sinc's window: 70 dB of stop-band attenuation.
_KAISER_BETA = 7.0
# Largest delay (samples) applied to paths measured from before zero.
MAX_DELAY = 1024
# A response begins (share of its largest sample) after what noise leaves; what is left before it (samples).
_ONSET, _BEFORE_ONSET = 0.05, 256
# Largest share of a response's energy before zero.
MAX_LOST = 1e-5
# Largest share of the energy beyond the length of a request.
MAX_CUT = 1e-4
MAX_RESPONSE_SAMPLES = 32_768
# Samples at a response's beginning that are fitted, because the sinc would reach before zero.
N_FITTED = 1024


@dataclass(frozen=True, eq=False)
class Response:
    """Samples of an impulse response."""

    # File and channel, for messages.
    what: str
    samples: Float64
    rate_hz: float
    # Time of the first sample.
    start_s: float = 0.0
    # What the file states of the level.
    level: str = ""


def check_rate(file: Path | str, rate_hz: float) -> None:
    """Raise FileError for an unsupported sample rate."""
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
        raise FileError(f"{file}: its sample rate is {rate_hz:g} Hz; use {RATES_HZ[0]:g} to {RATES_HZ[1]:g} Hz")


def common_start(paths: Sequence[Response]) -> int:
    """Return the samples at 48 kHz that precede all paths, as in files that keep a second before the peak.

    Such a start is the measurement's, and longer than any way from the loudspeaker to a microphone. The feedback path
    of the same measurement has it as well, or a loop would be closed too late; without it no filter changes.

    Returns
    -------
    int
        0 if a path begins before `MAX_DELAY`.
    """
    begin = min(_onset(path) for path in paths)
    return begin - _BEFORE_ONSET if begin > MAX_DELAY else 0


def common_delay(paths: Sequence[Response]) -> int:
    """Find the delay of primary and secondary path that preserves samples before time zero.

    It changes no filter, because it only delays e = p * x - s * w * x.

    Returns
    -------
    int
        Samples at 48 kHz; 0 if neither path begins before zero.

    Raises
    ------
    FileError
        More of a path than noise lies further than `MAX_DELAY` samples before zero.
    """
    needed = max(_needed_delay(path) for path in paths)
    return max(needed, *(_sinc_delay(path, needed) for path in paths))


def _sinc_delay(path: Response, delay: int) -> int:
    """Return the samples at 48 kHz that the sinc of a low rate reaches before zero, where it holds energy there."""
    late = replace(path, start_s=path.start_s + delay / SAMPLE_RATE_HZ)
    if path.rate_hz >= DELAYED_BELOW_HZ:
        return delay
    shifted = _resampled(late, MAX_DELAY)
    reach = int(np.ceil(N_CROSSINGS * SAMPLE_RATE_HZ / path.rate_hz))
    return delay + reach if _lost(shifted[:MAX_DELAY], shifted) > MAX_LOST else delay


def at_48_khz(response: Response, delay: int = 0) -> Float64:
    """Bring a response to 48 kHz, with the same transfer function below the lower Nyquist frequency.

    Parameters
    ----------
    response
        Samples of a path.
    delay
        Delay in samples at 48 kHz.

    Returns
    -------
    Float64
        Samples from time zero, at most 32768.

    Raises
    ------
    FileError
        Too much of the response lies before zero, or beyond 32768 samples.
    """
    late = replace(response, start_s=response.start_s + delay / SAMPLE_RATE_HZ)
    shifted = _resampled(late, MAX_DELAY)
    lost = _lost(shifted[:MAX_DELAY], shifted)
    samples = shifted[MAX_DELAY:]
    n_early = round(max(0.0, -late.start_s * late.rate_hz))
    early = _lost(late.samples[:n_early], late.samples)
    if early > 100 * MAX_CUT:
        raise _before_zero(late, early)
    if early < MAX_LOST < lost:
        samples = _fitted(late)
    beyond = _lost(samples[MAX_RESPONSE_SAMPLES:], samples)
    if beyond > MAX_CUT:
        raise FileError(
            f"{response.what}: the response lasts {len(samples)} samples and {100 * beyond:.3g} % of its energy lie "
            f"beyond {MAX_RESPONSE_SAMPLES}; window it, or `calibrate` first if it is a recording"
        )
    return samples[:MAX_RESPONSE_SAMPLES]


def _resampled(response: Response, delay: int) -> Float64:
    """Compute g[n - delay] from n = 0 to the response's end; exact for shifts by whole samples."""
    ratio = SAMPLE_RATE_HZ / response.rate_hz
    offset = response.start_s * SAMPLE_RATE_HZ + delay
    samples = np.asarray(response.samples, np.float64)
    if ratio == 1 and abs(offset - round(offset)) < 1e-3:
        whole = round(offset)
        return np.concatenate((np.zeros(whole), samples)) if whole >= 0 else samples[-whole:]
    cutoff = min(1.0, ratio)  # relative to the Nyquist frequency of the samples
    width = N_CROSSINGS / cutoff
    n_out = max(0, int(np.ceil(offset + (len(samples) - 1 + width) * ratio)) + 1)
    place = (np.arange(n_out) - offset) / ratio  # in samples of the response
    nearest = np.floor(place).astype(np.int64)
    reach = int(np.ceil(width))
    padded = np.concatenate((np.zeros(reach), samples, np.zeros(reach + 1)))
    found = np.zeros(n_out)
    for step in range(1 - reach, reach + 1):
        index = nearest + step
        distance = place - index
        window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1 - (distance / width) ** 2, 0, None))) / np.i0(_KAISER_BETA)
        inside = (np.abs(distance) < width) & (index >= -reach) & (index <= len(samples) + reach)
        kernel = np.where(inside, cutoff * np.sinc(cutoff * distance) * window, 0)
        found += kernel * padded[np.clip(index + reach, 0, len(padded) - 1)]
    return found / ratio


def _lost(before: Float64, samples: Float64) -> float:
    total = float(samples @ samples)
    return float(before @ before) / total if total else 0.0


def _needed_delay(path: Response) -> int:
    """Count the samples at 48 kHz from the first one above the noise to time zero."""
    samples = np.asarray(path.samples, np.float64)
    time = (path.start_s + np.arange(len(samples)) / path.rate_hz) * SAMPLE_RATE_HZ
    noise = samples[time < -MAX_DELAY]
    if _lost(noise, samples) > 100 * MAX_CUT:
        raise _before_zero(path, _lost(noise, samples))
    near = (time >= -MAX_DELAY) & (time < 0)
    energy = np.cumsum(samples[near] ** 2)
    floor = 2 * float(np.mean(noise**2)) if len(noise) else 0.0
    audible = energy > MAX_LOST * float(samples @ samples) + floor * np.arange(1, len(energy) + 1)
    return int(np.ceil(-time[near][audible][0])) if audible.any() else 0


def _onset(path: Response) -> int:
    """Return the time, in samples at 48 kHz, at which a response begins."""
    magnitude = np.abs(path.samples)
    first = int(np.argmax(magnitude >= _ONSET * magnitude.max()))
    return int((path.start_s + first / path.rate_hz) * SAMPLE_RATE_HZ)


def _before_zero(path: Response, share: float) -> FileError:
    return FileError(
        f"{path.what}: {100 * share:.3g} % of its energy lies before time zero; cut both paths at the same time, just "
        "before they begin"
    )


def _fitted(response: Response) -> Float64:
    """Find the causal response g that minimises sum_k v_k |G_k - H_k|^2 on a grid that both rates share.

    Toeplitz normal equations; the weight v falls towards the lower Nyquist frequency and is small above it; the error
    is about -50 dB. Only the beginning is fitted: later samples' sincs end after zero.
    """
    from scipy.linalg import solve_toeplitz

    n_head = int((N_FITTED / SAMPLE_RATE_HZ - response.start_s) * response.rate_hz)
    head = np.where(np.arange(len(response.samples)) < n_head, response.samples, 0)
    tail = _resampled(replace(response, samples=response.samples - head), 0)
    n_taps = 4 * N_FITTED
    ratio = Fraction(SAMPLE_RATE_HZ / response.rate_hz).limit_denominator(4096)
    factor = 2 * int(np.ceil(4 * n_taps / ratio.numerator))
    n_new, n_old = factor * ratio.numerator, factor * ratio.denominator
    frequency = np.arange(n_new // 2 + 1) / n_new * SAMPLE_RATE_HZ
    spectrum = np.fft.rfft(head[:n_head], n_old)[: len(frequency)]
    target = np.zeros(len(frequency), np.complex128)
    target[: len(spectrum)] = spectrum * np.exp(-2j * np.pi * frequency[: len(spectrum)] * response.start_s)
    top = min(response.rate_hz, SAMPLE_RATE_HZ) / 2
    weight = 10 ** np.clip(-6 * (frequency / top - 0.7) / 0.3, -6, 0)
    taps = solve_toeplitz(np.fft.irfft(weight, n_new)[:n_taps], np.fft.irfft(weight * target, n_new)[:n_taps])
    found = np.zeros(max(n_taps, len(tail)))
    found[: len(tail)] = tail
    found[:n_taps] += taps
    rest = np.cumsum(found[::-1] ** 2)[::-1]
    return found[rest > 1e-9 * rest[0]]
