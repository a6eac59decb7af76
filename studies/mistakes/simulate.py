"""Measurements of an ear with known paths, right ones and wrong ones.

A calibration's mistakes are made where they happen: in the secondary path, in what is recorded, or in what is
declared. A design request's mistakes are made in the paths that a right calibration has estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, fftconvolve, lfilter, resample_poly

from measurement.estimate import Take
from synthesis.conventions import SAMPLE_RATE_HZ

Real = NDArray[np.floating]
Takes = list[Take]

GAIN = 0.35
N_SAMPLES = 4 * SAMPLE_RATE_HZ
RMS = 0.05
PROBES = ("white", "pink", "sweep", "pool")


def probe_signals(recordings: Real, n_samples: int = N_SAMPLES) -> dict[str, Real]:
    """Each kind of probe as takes [n_takes, n_samples]: one take of white noise, pink noise or an exponential sweep
    from 20 Hz to 20 kHz, or one of each recording [n, at least n_samples]."""
    white, flat = np.random.default_rng(0).standard_normal((2, n_samples))
    falling = 1 / np.sqrt(np.maximum(np.fft.rfftfreq(n_samples, 1 / SAMPLE_RATE_HZ), 10.0))
    pink = np.fft.irfft(np.fft.rfft(flat) * falling, n_samples)
    octaves = np.log(1000.0)
    time = np.arange(n_samples) / n_samples
    sweep = np.sin(2 * np.pi * 20 * n_samples / SAMPLE_RATE_HZ / octaves * np.expm1(octaves * time))
    found = {"white": white[None], "pink": pink[None], "sweep": sweep[None], "pool": recordings[:, :n_samples]}
    return {name: RMS * x / np.sqrt((x**2).mean(-1, keepdims=True)) for name, x in found.items()}


def further_probes(recordings: Real) -> dict[str, Real]:
    """Probes of other lengths and of one recording alone, for right measurements, as of `probe_signals`."""
    found: dict[str, Real] = {}
    for seconds in (1, 20):
        signals = probe_signals(np.zeros((1, seconds * SAMPLE_RATE_HZ)) + 1, seconds * SAMPLE_RATE_HZ)
        found |= {f"{name}, {seconds} s": signals[name] for name in ("white", "pink", "sweep")}
    for number, recording in enumerate(recordings):
        for seconds in (1, 4, 12):
            x = recording[None, : seconds * SAMPLE_RATE_HZ]
            found[f"recording {number + 1}, {seconds} s"] = RMS * x / np.sqrt(np.mean(x**2))
    return found


def record(
    probes: Real,
    primary: Real,
    secondary: Real,
    snr_db: float,
    rng: np.random.Generator,
    driven: Real | None = None,
) -> Takes:
    """A take with gain 0 and one with GAIN of each probe, with white noise `snr_db` below the first one's error.

    driven: primary path in the state with a gain, if it is another one.
    """
    takes = []
    for x in probes:
        disturbance = fftconvolve(x, primary)[: x.size]
        noise = 10 ** (-snr_db / 20) * np.sqrt(np.mean(disturbance**2))
        played = disturbance if driven is None else fftconvolve(x, driven)[: x.size]
        played = played - GAIN * fftconvolve(x, secondary)[: x.size]
        for gain, error in ((0.0, disturbance), (GAIN, played)):
            takes.append(Take(gain, x, error + noise * rng.standard_normal(x.size)))
    return takes


def high_passed(response: Real, order: int, cutoff_hz: float) -> Real:
    """What a leak of that order leaves of a response."""
    leaking: Real = lfilter(*butter(order, cutoff_hz, "highpass", fs=SAMPLE_RATE_HZ), response)
    return leaking


def later(response: Real, n_samples: int) -> Real:
    """The response that many samples later, as long as before."""
    return np.pad(response, (n_samples, 0))[: response.size]


def read_as_48_khz(response: Real) -> Real:
    """What a response that was recorded at 44.1 kHz is taken for."""
    found: Real = resample_poly(response, 147, 160)[: response.size] * (160 / 147)
    return np.pad(found, (0, response.size - found.size))


def ringing(response: Real) -> Real:
    """With a tail 20 dB below it that decays by e in 60 ms, as in a small hard box."""
    n = response.size
    tail = np.random.default_rng(2).standard_normal(n) * np.exp(-np.arange(n) / 3000)
    return response + 0.1 * np.linalg.norm(response) / np.linalg.norm(tail) * tail


def _declared(takes: Takes, factor: float) -> Takes:
    return [Take(factor * take.gain, take.reference, take.error) for take in takes]


def _swapped_states(takes: Takes) -> Takes:
    return [Take(GAIN - take.gain, take.reference, take.error) for take in takes]


def _swapped_channels(takes: Takes) -> Takes:
    return [Take(take.gain, take.error, take.reference) for take in takes]


def _dead(takes: Takes, channel: str) -> Takes:
    """Only the noise of a converter, 80 dB below the other channel."""
    rng = np.random.default_rng(1)
    found = []
    for take in takes:
        level = 1e-4 * float(np.sqrt(np.mean(take.reference**2)))
        hiss = level * rng.standard_normal(take.reference.size)
        found.append(Take(take.gain, hiss, take.error) if channel == "x" else Take(take.gain, take.reference, hiss))
    return found


def _clipped(takes: Takes) -> Takes:
    def cut(error: Real) -> Real:
        limit = 2.5 * float(np.sqrt(np.mean(error**2)))
        return np.clip(error, -limit, limit)

    return [Take(take.gain, take.reference, cut(np.asarray(take.error))) for take in takes]


def _turned_up(takes: Takes, by_db: float) -> Takes:
    """The error microphone, before the state with a gain."""
    factors = [10 ** (by_db / 20) if take.gain else 1.0 for take in takes]
    return [
        Take(take.gain, take.reference, factor * take.error) for take, factor in zip(takes, factors, strict=True)
    ]


def _ended(takes: Takes) -> Takes:
    """The probe, before half of each take."""
    return [
        Take(
            take.gain,
            *(np.pad(each[: each.size * 2 // 5], (0, each.size - each.size * 2 // 5)) for each in signals),
        )
        for take in takes
        for signals in [(take.reference, take.error)]
    ]


def _short(takes: Takes) -> Takes:
    n = SAMPLE_RATE_HZ // 5
    return [Take(take.gain, take.reference[n : 2 * n], take.error[n : 2 * n]) for take in takes]


@dataclass(frozen=True)
class Mistake:
    """A mistake in a calibration.

    primary, secondary, both: of that path, or of both. takes: of the recordings. noise_db: SNR in place of the one
    asked for. others: whose secondary path, or both paths while the loudspeaker plays, come from another person.
    """

    primary: Callable[[Real], Real] | None = None
    secondary: Callable[[Real], Real] | None = None
    both: Callable[[Real], Real] | None = None
    takes: Callable[[Takes], Takes] | None = None
    snr_db: float | None = None
    other: bool = False


CALIBRATION_MISTAKES: dict[str, Mistake] = {
    "right": Mistake(),
    "inverted": Mistake(secondary=np.negative),
    "declared gain x 2": Mistake(takes=partial(_declared, factor=2.0)),
    "declared gain / 2": Mistake(takes=partial(_declared, factor=0.5)),
    "declared gain x 10": Mistake(takes=partial(_declared, factor=10.0)),
    "declared gain / 10": Mistake(takes=partial(_declared, factor=0.1)),
    "declared gain x 100": Mistake(takes=partial(_declared, factor=100.0)),
    "secondary 30 dB too quiet": Mistake(secondary=lambda s: s * 10**-1.5),
    "first-order leak, 200 Hz": Mistake(secondary=partial(high_passed, order=1, cutoff_hz=200.0)),
    "first-order leak, 300 Hz": Mistake(secondary=partial(high_passed, order=1, cutoff_hz=300.0)),
    "second-order leak, 200 Hz": Mistake(secondary=partial(high_passed, order=2, cutoff_hz=200.0)),
    "second-order leak, 300 Hz": Mistake(secondary=partial(high_passed, order=2, cutoff_hz=300.0)),
    "1 sample late": Mistake(secondary=partial(later, n_samples=1)),
    "2 samples late": Mistake(secondary=partial(later, n_samples=2)),
    "4 samples late": Mistake(secondary=partial(later, n_samples=4)),
    "primary 16 samples late": Mistake(primary=partial(later, n_samples=16)),
    "44.1 kHz as 48 kHz": Mistake(both=read_as_48_khz),
    "states swapped": Mistake(takes=_swapped_states),
    "channels swapped": Mistake(takes=_swapped_channels),
    "dead outer microphone": Mistake(takes=partial(_dead, channel="x")),
    "dead error microphone": Mistake(takes=partial(_dead, channel="e")),
    "clipped": Mistake(takes=_clipped),
    **{
        f"microphone turned by {db:+g} dB": Mistake(takes=partial(_turned_up, by_db=db))
        for db in (-3.0, -1.0, 1.0, 3.0)
    },
    "probe ends before half": Mistake(takes=_ended),
    "takes of 0.2 s": Mistake(takes=_short),
    "ringing": Mistake(secondary=ringing),
    "SNR 10 dB": Mistake(snr_db=10.0),
    "another person's second state": Mistake(other=True),
}


def calibration_takes(
    mistake: Mistake,
    probes: Real,
    own: tuple[Real, Real],
    other: tuple[Real, Real],
    snr_db: float,
    rng: np.random.Generator,
) -> Takes:
    """The takes of an ear (its primary and secondary path) with a mistake in them; other: another person's ear."""
    primary, secondary = own
    if mistake.both is not None:
        primary, secondary = mistake.both(primary), mistake.both(secondary)
    if mistake.primary is not None:
        primary = mistake.primary(primary)
    if mistake.secondary is not None:
        secondary = mistake.secondary(secondary)
    driven = None
    if mistake.other:
        driven, secondary = other
    snr_db = snr_db if mistake.snr_db is None else mistake.snr_db
    takes = record(probes, primary, secondary, snr_db, rng, driven)
    return takes if mistake.takes is None else mistake.takes(takes)


Responses = tuple[Real, Real]

REQUEST_MISTAKES: dict[str, Callable[[Responses, Responses], Responses]] = {
    "right": lambda own, other: own,
    "secondary inverted": lambda own, other: (own[0], -own[1]),
    "primary inverted": lambda own, other: (-own[0], own[1]),
    "secondary also as primary": lambda own, other: (own[1], own[1]),
    "primary also as secondary": lambda own, other: (own[0], own[0]),
    "secondary 6 dB too quiet": lambda own, other: (own[0], own[1] / 2),
    "secondary 20 dB too quiet": lambda own, other: (own[0], own[1] / 10),
    "secondary 30 dB too quiet": lambda own, other: (own[0], own[1] * 10**-1.5),
    "primary 200 dB too quiet": lambda own, other: (own[0] * 1e-10, own[1]),
    "paths swapped": lambda own, other: (own[1], own[0]),
    "another person's secondary": lambda own, other: (own[0], other[1]),
    "first-order leak, 200 Hz": lambda own, other: (own[0], high_passed(own[1], 1, 200.0)),
    "first-order leak, 300 Hz": lambda own, other: (own[0], high_passed(own[1], 1, 300.0)),
    "second-order leak, 200 Hz": lambda own, other: (own[0], high_passed(own[1], 2, 200.0)),
    "second-order leak, 300 Hz": lambda own, other: (own[0], high_passed(own[1], 2, 300.0)),
    "1 sample late": lambda own, other: (own[0], later(own[1], 1)),
    "2 samples late": lambda own, other: (own[0], later(own[1], 2)),
    "4 samples late": lambda own, other: (own[0], later(own[1], 4)),
    "primary 16 samples late": lambda own, other: (later(own[0], 16), own[1]),
    "44.1 kHz as 48 kHz": lambda own, other: (read_as_48_khz(own[0]), read_as_48_khz(own[1])),
    "both times -1e-3": lambda own, other: (-1e-3 * own[0], -1e-3 * own[1]),
}
"""Right paths first; the last ones are right too, for a microphone's sensitivity and wiring are no ear's."""
