"""Bands of which a measurement says nothing, as its coherence or its uncertainty tells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.bands import WIDE_BANDS, edges_hz
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.methods import spectrum
from synthesis.support_statistics import first_bins
from synthesis.types import Paths

UNHEARD = 0.06
"""Mean coherence of a band below which its estimate is noise. Of 73 bands that single recordings at 20 to 40 dB SNR
leave 3 dB louder all are below; of white noise at these SNRs none is."""

MOST_UNCERTAIN = 1.0
"""Largest `uncertainty` of a band that is known in part; `/calibrate` answers no larger one."""

LOUDEST_DB = 0.9
"""By which an unknown band may become louder."""

MOST_PLAYED = 0.1
"""Of |P|, what the loudspeaker may play in an unknown band that nothing else keeps quiet: added in phase 0.8 dB."""

LEAST_GAIN_DB = -60.0

_EDGES = first_bins((*(edges_hz(n)[0] for n in WIDE_BANDS), edges_hz(WIDE_BANDS[-1])[1]))
_LEAST_SUM = UNHEARD * np.diff(_EDGES)


def unknown_bands(condition: Paths) -> NDArray[np.bool_]:
    """Find the bands of which a measurement says nothing.

    Parameters
    ----------
    condition
        Paths with a coherence, an uncertainty, both or neither.

    Returns
    -------
    NDArray[np.bool_]
        Of each band from 20 Hz to 20 kHz, [31], whether its mean coherence is below `UNHEARD`, or either path's
        uncertainty above `MOST_UNCERTAIN`. Of paths that were sent alone every band counts as known.
    """
    unknown = np.zeros(len(WIDE_BANDS), bool)
    if condition.coherence is not None:
        unknown |= _band_sums(condition.coherence) < _LEAST_SUM
    if condition.uncertainty is not None:
        unknown |= (condition.uncertainty > MOST_UNCERTAIN).any(0)
    return unknown


def quiet_db(condition: Paths, taps: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Compute a ceiling on |W| that keeps unknown bands from becoming louder.

    Parameters
    ----------
    condition
        Paths of usable shapes, and what is known of them.
    taps
        The filter that may make some of them louder, [2048].

    Returns
    -------
    NDArray[np.float64] or None
        Per bin of the design grid, dB, [16385]: in each unknown band in which sum |P - S W|^2 is more than
        `LOUDEST_DB` above sum |P|^2, that of `MOST_PLAYED` sqrt(sum |P|^2 / sum |S|^2); infinite elsewhere. None if
        there is no such band.
    """
    unknown = unknown_bands(condition)
    if not unknown.any():
        return None
    primary, secondary = spectrum(condition.primary), spectrum(condition.secondary)
    left = primary - secondary * np.fft.rfft(taps, DESIGN_N_FFT)
    disturbance, control, residual = (_band_sums(np.abs(each) ** 2) for each in (primary, secondary, left))
    louder = unknown & (residual > 10 ** (LOUDEST_DB / 10) * disturbance)
    if not louder.any():
        return None
    ratio = MOST_PLAYED**2 * disturbance[louder] / control[louder]
    band_db = np.full(len(louder), np.inf)
    band_db[louder] = np.maximum(10 * np.log10(np.maximum(ratio, 1e-30)), LEAST_GAIN_DB)
    limit_db = np.full(N_BINS, np.inf)
    limit_db[_EDGES[0] : _EDGES[-1]] = np.repeat(band_db, np.diff(_EDGES))
    return limit_db


def _band_sums(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Sum over the bins of each band: [16385] -> [31]."""
    sums: NDArray[np.floating] = np.add.reduceat(values[: _EDGES[-1]], _EDGES[:-1])
    return sums
