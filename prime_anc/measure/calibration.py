"""Estimate one ear's paths from probe recordings, with the figures by which the calibration is judged.

The paths and their uncertainty are a posterior (`measure.posterior`). The recordings are judged by plain spectra of
shorter windows (`measure.figures`), which no prior has smoothed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from prime_anc.measure.clocks import NO_DRIFT, Drift, one_clock
from prime_anc.measure.estimate import (
    GainTake,
    PathEstimate,
    PlayedTake,
    paths_of_states,
    probe_states,
    window_starts,
)
from prime_anc.measure.figures import WINDOW, Figures, figures_of
from prime_anc.measure.hum import find_hum
from prime_anc.measure.posterior import estimate
from prime_anc.measure.prior import PathPrior
from prime_anc.measure.signals import clipped_share, silent_share
from prime_anc.method.arrays import Real
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.posing import MAX_LEVEL_DIFFERENCE_DB, level_db
from prime_anc.method.support.explanation import SupportPrior

# Default limit per take.
MAX_N_WINDOWS = 64

# Limit for all takes together: half a second of computing.
MAX_TOTAL_WINDOWS = 2048

# Shortest take: 64 ms, three windows of the shortest kind.
MIN_SAMPLES = 3072

# Longest take: a minute is fifteen times what training uses.
MAX_SAMPLES = 60 * SAMPLE_RATE_HZ

Take = TypeVar("Take", GainTake, PlayedTake)


class Windows(NamedTuple):
    """Windows used of a take."""

    # Samples per window.
    length: int
    # First sample of the first window.
    first: int
    # Number of windows, equally spaced.
    n: int


@dataclass(frozen=True, eq=False)
class Calibration(Figures):
    """Paths of one ear and the quality of its recordings; all arrays float64.

    Verdicts are based on `measured`.
    """

    # Paths [8192] and [2048] and coherence per bin [16385] from the takes alone, with the weight of the windows.
    measured: PathEstimate
    # Posterior means, [8192] and [4096].
    estimate: PathEstimate
    # Expected squared error over power of both estimates, without what is later than they are, [2, 31].
    noise_share: Real
    # Unknown over known power of primary and secondary path, [2, 31] from 20 Hz to 20 kHz.
    uncertainty: Real
    # Largest share of a signal's samples at its extremes.
    clipped_share: float
    # Name of that signal.
    clipped_in: str
    # Largest share of silent windows in a take.
    silent_share: float
    # Name of that signal.
    silent_in: str
    # Tones that do not follow the paths (`hum`).
    hum_hz: list[float]
    # Path from loudspeaker to outer microphone, [4096], if there were drives.
    feedback: Real | None = None
    # Largest drift between the clocks of a take's signals, which a steady one no longer has.
    clock_drift: Drift = NO_DRIFT


def plan_windows(n_samples: int, n_windows: int = MAX_N_WINDOWS) -> Windows:
    """Place up to n_windows half-overlapping windows in a take, the first after as many samples as a window has.

    They have 8192 samples, in short takes fewer.
    """
    length = min(WINDOW, 1 << ((n_samples // 3).bit_length() - 1))
    room = n_samples - 2 * length
    return Windows(length, length, min(n_windows, 1 + 2 * room // length))


@np.errstate(all="ignore")  # levels that overflow are refused by `_check_estimate` and `_checked`
def calibrate(
    takes: Sequence[GainTake],
    n_windows: int | None = None,
    windows: Windows | None = None,
    prior: PathPrior | None = None,
    support: SupportPrior | None = None,
    drives: Sequence[PlayedTake] = (),
    clipped_shares: Mapping[str, float] = MappingProxyType({}),
) -> Calibration:
    """Estimate both paths of one ear, and the quality of its takes.

    Parameters
    ----------
    takes
        Signals [n] of at least MIN_SAMPLES; the shortest decides the windows, unless `windows` is given.
    n_windows
        Windows per take; None for all that overlap by half, at most MAX_TOTAL_WINDOWS together.
    windows
        Windows to use instead.
    prior
        Prior of the device's paths; None: a response that decays.
    support
        Support of the prior's device; paths of another device are calibrated without the prior.
    drives
        Takes of the loudspeaker alone, instead of or besides takes with a gain.
    clipped_shares
        Clipped shares of the signals before they were resampled, by names such as `take 0, x`.

    Raises
    ------
    InvalidPaths
        Takes (field `takes`) are too short, too long, silent or not finite, their states do not differ, or their levels
        exceed the range of float32.
    InvalidOption
        A state is missing.
    """
    quality = _signal_quality(takes, drives, clipped_shares)
    exact, exact_drives, drift = one_clock([_exact(take) for take in takes], [_exact(drive) for drive in drives])
    lengths = [len(take.error) for take in exact] + [len(drive.error) for drive in exact_drives]
    shortest = min(lengths)
    cut = windows or plan_windows(shortest, n_windows or max(MAX_TOTAL_WINDOWS // len(lengths), 1))
    placed = {"window": cut.length, "n_offsets": cut.n, "first_sample": cut.first, "last_sample": shortest}
    states = probe_states(exact, drives=exact_drives, **placed)
    measured = paths_of_states(states)
    _check_estimate(measured)
    used = slice(cut.first + round((cut.n + 1) * cut.length / 2)) if n_windows else slice(None)
    paths = estimate([_cut(take, used) for take in exact], [_cut(drive, used) for drive in exact_drives], prior)
    if prior is not None and support is not None:
        both = (measured.primary, measured.secondary), (paths.primary, paths.secondary)
        if not any(support.is_device(*pair) for pair in both):
            del exact, exact_drives  # as large as the recordings
            return calibrate(takes, n_windows, windows, drives=drives, clipped_shares=clipped_shares)
    estimated = replace(measured, primary=paths.primary, secondary=paths.secondary)
    _check_estimate(estimated)
    starts = window_starts(cut.length, cut.n, cut.first, shortest)
    calibration = Calibration(
        **vars(figures_of(exact, exact_drives, states, measured, starts)),
        **quality,
        measured=measured,
        estimate=estimated,
        noise_share=paths.noise_share,
        uncertainty=paths.uncertainty,
        hum_hz=find_hum(exact),
        feedback=paths.feedback,
        clock_drift=drift,
    )
    return _checked(calibration)


def _exact(take: Take) -> Take:
    """Return a take in double precision."""
    return _changed(take, lambda signal: signal.astype(np.float64))


def _cut(take: Take, used: slice) -> Take:
    """Return the used part of a take."""
    return _changed(take, lambda signal: signal[used])


def _changed(take: Take, change: Callable[[Real], Real]) -> Take:
    changed: dict[str, Any] = {
        name: change(item) for name, item in vars(take).items() if isinstance(item, np.ndarray)
    }
    return replace(take, **changed)


def _signal_quality(
    takes: Sequence[GainTake], drives: Sequence[PlayedTake], clipped_shares: Mapping[str, float]
) -> dict[str, Any]:
    """Refuse unusable signals; find the one most clipped and the probe most silent, fields of a `Calibration`."""
    heard: dict[str, Real] = {}
    probes: dict[str, Real] = {}
    for n, take in enumerate(takes):
        name = take.name or f"take {n}"
        heard |= {f"{name}, x": take.reference, f"{name}, e": take.error}
        probes[f"{name}, x"] = take.reference
    for n, drive in enumerate(drives):
        name = drive.name or f"drive {n}"
        heard |= {f"{name}, x": drive.reference, f"{name}, e": drive.error}
        probes[f"{name}, drive"] = drive.drive
    _check_signals(heard | probes)
    clipped = max((max(clipped_share(item), clipped_shares.get(name, 0.0)), name) for name, item in heard.items())
    silent = max((silent_share(item), name) for name, item in probes.items())
    return dict(zip(("clipped_share", "clipped_in", "silent_share", "silent_in"), clipped + silent, strict=True))


def _check_signals(signals: Mapping[str, Real]) -> None:
    for where, signal in signals.items():
        if not MIN_SAMPLES <= signal.shape[-1] <= MAX_SAMPLES:
            raise InvalidPaths(
                f"{where}: it has {signal.shape[-1]} samples; record {MIN_SAMPLES} to {MAX_SAMPLES}", "takes"
            )
        if not np.isfinite(signal).all():
            raise InvalidPaths(f"{where}: it holds NaN or infinity; send finite samples", "takes")
        if not signal.any():
            raise InvalidPaths(f"{where}: it is silent; check what is connected and record again", "takes")


def _check_estimate(estimate: PathEstimate) -> None:
    for name, response in (("primary", estimate.primary), ("secondary", estimate.secondary)):
        if not np.abs(np.fft.rfft(response, n=DESIGN_N_FFT)).max() < np.finfo(np.float32).max:
            raise InvalidPaths(
                f"takes: their {name} path is too large for float32; scale x and e to similar levels", "takes"
            )
    if not estimate.secondary.any():
        raise InvalidPaths(
            "takes: the states do not differ; make sure that the loudspeaker plays in takes with a gain", "takes"
        )
    difference_db = level_db(estimate.primary) - level_db(estimate.secondary)
    if not abs(difference_db) <= MAX_LEVEL_DIFFERENCE_DB:
        raise InvalidPaths(
            f"takes: the levels of their primary and secondary path differ by {abs(difference_db):.0f} dB, which "
            "no earphone explains; record all takes at the same microphone gains, and send them in one unit",
            "takes",
        )


def _checked(calibration: Calibration) -> Calibration:
    """Return the calibration; raise InvalidPaths if float32 cannot hold its figures."""
    figures = [var for var in vars(calibration).values() if isinstance(var, float | np.ndarray)]
    figures.append(np.array(calibration.state_levels_db))
    if not all(np.isfinite(np.asarray(figure, np.float32)).all() for figure in figures):
        raise InvalidPaths(
            "takes: the levels of their signals are too far apart to compute with; record all takes at the same "
            "microphone gains, and send them in one unit",
            "takes",
        )
    return calibration
