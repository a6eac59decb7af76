"""Bands without measured data, or in which a system is silent: found, and kept from becoming louder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synthesis.bands import ABSENT, UNKNOWN, WIDE_BANDS, edges_hz
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.methods import Path, spectrum
from synthesis.support_statistics import first_bins
from synthesis.types import Paths, Problem

# Mean coherence of a band below which its estimate is noise. Of 73 bands that single recordings at 20 to 40 dB SNR
# leave 3 dB louder all are below; of white noise at these SNRs none is.
UNHEARD = 0.06

# Largest `uncertainty` of a band that is known in part; `/calibrate` answers no larger one.
MOST_UNCERTAIN = 1.0

# Mean |P|^2 of a band over that of the loudest below which the system is silent: 60 dB, as above half the rate of a
# converter. The quietest bands of 30 measured ears are at -38 dB.
SILENT = 1e-6

# Allowed increase of an unknown band's level (dB).
LOUDEST_DB = 0.9

# Loudspeaker's share of |P| in an unknown band without another limit: added in phase 0.8 dB.
MOST_PLAYED = 0.1

LEAST_GAIN_DB = -60.0

# First bins of the bands from 20 Hz to 20 kHz on the design grid, and the bin after the last.
BAND_BINS = first_bins((*(edges_hz(n)[0] for n in WIDE_BANDS), edges_hz(WIDE_BANDS[-1])[1]))
LEAST_COHERENCE_SUM = UNHEARD * np.diff(BAND_BINS)

# The same on the grid of responses of up to this many samples; a band without a bin has that above it.
_SHORT = 8192
_SHORT_BINS = BAND_BINS * _SHORT // DESIGN_N_FFT


def silent_bands(path: Path) -> NDArray[np.bool_] | None:
    """Find the bands in which nothing passes a path.

    Parameters
    ----------
    path
        Of usable shape and values.

    Returns
    -------
    NDArray[np.bool_] or None
        Per band from 20 Hz to 20 kHz, [31]; None if there is none.
    """
    is_short = not np.iscomplexobj(path) and len(path) <= _SHORT
    n_fft, bins = (_SHORT, _SHORT_BINS) if is_short else (DESIGN_N_FFT, BAND_BINS)
    values = path if np.iscomplexobj(path) else np.fft.rfft(path, n_fft)
    power = np.add.reduceat(np.square(values.real) + np.square(values.imag), bins)[:-1]
    power /= np.maximum(np.diff(bins), 1)
    silent: NDArray[np.bool_] = power < SILENT * power.max()
    return silent if silent.any() else None


def with_silence(paths: Paths) -> Paths:
    """Add the bands in which the primary path is silent, as unknown, or as absent if the secondary is, too."""
    silent = silent_bands(paths.primary)
    if silent is None:
        return paths
    unplayed = silent_bands(paths.secondary)
    known = np.zeros(len(WIDE_BANDS), np.uint8) if paths.unknown is None else paths.unknown.copy()
    known[silent] = UNKNOWN
    if unplayed is not None:
        known[silent & unplayed] = ABSENT
    return replace(paths, silent=silent, unknown=known)


def unknown_bands(paths: Paths) -> NDArray[np.uint8]:
    """Find the bands that a coherence or an uncertainty shows as not measured: 0 or UNKNOWN, [31]."""
    unknown = np.zeros(len(WIDE_BANDS), bool)
    if paths.coherence is not None:
        unknown |= _band_sums(paths.coherence) < LEAST_COHERENCE_SUM
    if paths.uncertainty is not None:
        unknown |= (paths.uncertainty > MOST_UNCERTAIN).any(0)
    return unknown.astype(np.uint8)


def quiet_db(condition: Paths, taps: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Compute a ceiling on |W| that keeps unknown bands from becoming louder.

    Parameters
    ----------
    condition
        Paths of usable shapes, with their unknown bands.
    taps
        The filter that may make some of them louder, [2048].

    Returns
    -------
    NDArray[np.float64] or None
        Per bin of the design grid, dB, [16385]: in unknown bands in which sum |P - S W|^2 is more than
        `LOUDEST_DB` above sum |P|^2, that of `MOST_PLAYED` sqrt(sum |P|^2 / sum |S|^2); infinite elsewhere. None if
        there is no such band.
    """
    if condition.unknown is None:
        return None
    unknown = condition.unknown == UNKNOWN
    primary, secondary = spectrum(condition.primary), spectrum(condition.secondary)
    left = primary - secondary * np.fft.rfft(taps, DESIGN_N_FFT)
    disturbance, control, residual = (_band_sums(np.abs(item) ** 2) for item in (primary, secondary, left))
    louder = unknown & (residual > 10 ** (LOUDEST_DB / 10) * disturbance)
    if not louder.any():
        return None
    ratio = MOST_PLAYED**2 * disturbance[louder] / control[louder]
    band_db = np.full(len(louder), np.inf)
    band_db[louder] = np.maximum(10 * np.log10(np.maximum(ratio, 1e-30)), LEAST_GAIN_DB)
    limit_db = np.full(N_BINS, np.inf)
    limit_db[BAND_BINS[0] : BAND_BINS[-1]] = np.repeat(band_db, np.diff(BAND_BINS))
    return limit_db


def lowest_quiet_db(problem: Problem, taps: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Return the lowest `quiet_db` of all conditions; None if there is none."""
    found = [limit_db for paths in problem.conditions if (limit_db := quiet_db(paths, taps)) is not None]
    return np.min(found, axis=0) if found else None


def _band_sums(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Sum over the bins of the bands: [16385] -> [31]."""
    sums: NDArray[np.floating] = np.add.reduceat(values[: BAND_BINS[-1]], BAND_BINS[:-1])
    return sums
