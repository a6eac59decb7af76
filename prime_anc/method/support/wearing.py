"""How the secondary path changes when an earphone is pressed, worn loosely or taken off, learnt from a support.

A change is a smooth factor on the path of an ear, or, of an earphone that is taken off, a path that hardly depends on
the ear. It is stated on POINTS_HZ and interpolated over log frequency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import SMALLEST
from prime_anc.method.bands import BINS_HZ
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidOption

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

# Twelve points per octave from 20 Hz to 20 kHz.
N_POINTS = 121
POINTS_HZ = np.geomspace(20.0, 20_000.0, N_POINTS)
# Bands in which an ear's level, sign and time are found. The level varies by 1.6 dB over ears; that of a tight fit is
# 7 dB higher, so that its path taken off is taken for louder than it is.
LEVEL_HZ, SIGN_HZ, TIME_HZ = (200.0, 1000.0), (60.0, 300.0), (1500.0, 8000.0)
# Number of samples at 48 kHz by which the paths of earphones differ at most; those of ducts and rooms are later.
MOST_LATER = 24
MAX_GAIN_DB, MAX_PHASE_DEG = 200.0, 1e5

_LOG_BINS = np.log(BINS_HZ.clip(min=POINTS_HZ[0]))
_LOG_POINTS = np.log(POINTS_HZ)
# First bin within half a step of each point, and the bin after the last.
_HALF_STEP = (POINTS_HZ[1] / POINTS_HZ[0]) ** 0.5
_BOUNDS = [
    (max(int(np.ceil(f / _HALF_STEP / BINS_HZ[1])) - 1, 1), int(f * _HALF_STEP / BINS_HZ[1]) + 2) for f in POINTS_HZ
]


@dataclass(frozen=True)
class WearingChange:
    """A change of the secondary path."""

    # Way of wearing: `pressed`, `slightly loose`, `loose`, `open`.
    name: str
    # Level of the support's paths (`path_level_db`) if this is a path; None: a factor.
    level_db: float | None
    # Gain, phase, and standard deviation of the gain over the support, [N_POINTS].
    gain_db: tuple[float, ...]
    phase_deg: tuple[float, ...]
    spread_db: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise InvalidOption for values of a wrong number or out of range."""
        limits = {"gain_db": MAX_GAIN_DB, "phase_deg": MAX_PHASE_DEG, "spread_db": MAX_GAIN_DB}
        for name, limit in limits.items():
            values = np.array(getattr(self, name))
            if values.shape != (N_POINTS,) or not (np.abs(values) <= limit).all():
                raise InvalidOption(f"wearing's {name}: out of range, or of the wrong length", name)

    @property
    def level_spread_db(self) -> float:
        """Mean standard deviation of a path's gain; 0 of a factor."""
        return 0.0 if self.level_db is None else float(np.mean(self.spread_db))

    def suits(self, secondary: Complex) -> bool:
        """Return whether a path may be an earphone's, by its time."""
        return self.level_db is None or abs(self._beside(secondary)[1]) <= MOST_LATER

    def applied(self, secondary: Complex) -> Complex:
        """Return the secondary path of an ear worn so: complex [16385] -> [16385]."""
        if self.level_db is None:
            return secondary * self._change
        sign, later = self._beside(secondary)
        level = sign * 10 ** ((path_level_db(secondary) - self.level_db) / 20)
        return level * self._change * np.exp(-2j * np.pi * later * np.arange(N_BINS) / DESIGN_N_FFT)

    @cached_property
    def _change(self) -> Complex:
        gain_db = np.interp(_LOG_BINS, _LOG_POINTS, self.gain_db)
        phase = np.radians(np.interp(_LOG_BINS, _LOG_POINTS, self.phase_deg))
        change: Complex = 10 ** (gain_db / 20) * np.exp(1j * phase)
        return change

    def _beside(self, secondary: Complex) -> tuple[float, int]:
        """Return the sign of an ear's path over this one, and by how many samples it is later."""
        turned = secondary * self._change.conj()
        turned /= np.maximum(np.abs(turned), SMALLEST)
        sign = float(np.sign(turned[_within(BINS_HZ, SIGN_HZ)].real.sum()))
        weights = _within(BINS_HZ, TIME_HZ) / np.maximum(BINS_HZ, 1)
        alike = np.fft.fftshift(sign * np.fft.irfft(weights * turned))
        return sign, int(alike.argmax()) - DESIGN_N_FFT // 2


def path_level_db(secondary: Complex) -> float:
    """Compute the mean level of a path from 200 Hz to 1 kHz, over log frequency."""
    gain_db, _ = _on_points(secondary)
    return float(gain_db[_within(POINTS_HZ, LEVEL_HZ)].mean())


def _within(frequency_hz: NDArray[np.floating], limits_hz: tuple[float, float]) -> NDArray[np.bool_]:
    return (limits_hz[0] <= frequency_hz) & (limits_hz[1] > frequency_hz)


def learn_wearing(
    normal: Sequence[Complex], factors: Mapping[str, Sequence[Complex]], paths: Mapping[str, Sequence[Complex]]
) -> tuple[WearingChange, ...]:
    """Learn changes from a support.

    Parameters
    ----------
    normal
        Secondary paths of earphones worn as they should be, complex [16385] each.
    factors
        By way of wearing: paths over those of the same ear worn as it should be, or over the mean of `normal`.
    paths
        By way of wearing: paths that depend little on the ear.

    Returns
    -------
    tuple[WearingChange, ...]
        Geometric means, with their spread; that of a path includes the spread of the level beside which it is given.
    """
    levels_db = np.array([path_level_db(path) for path in normal])
    made = []
    for given, level, level_sd in ((factors, None, 0.0), (paths, float(levels_db.mean()), levels_db.std())):
        for name, found in given.items():
            gain_db, phase_deg = np.stack([_on_points(item) for item in found], axis=1)
            phase_deg = phase_deg - 360 * np.round((phase_deg - phase_deg[0]).mean(1, keepdims=True) / 360)
            values = gain_db.mean(0), phase_deg.mean(0), np.hypot(gain_db.std(0), level_sd)
            made.append(WearingChange(name, level, *(tuple(np.round(item, 2).tolist()) for item in values)))
    return tuple(made)


def mean_path(paths: Sequence[Complex]) -> Complex:
    """Return the geometric mean of secondary paths, as smooth as a change: complex [16385]."""
    return learn_wearing(paths, {"mean": paths}, {})[0].applied(np.ones(N_BINS, complex))


def _on_points(values: Complex) -> tuple[Real, Real]:
    """Smooth a spectrum about every point: gain in dB and continuous phase in degrees, [N_POINTS]."""
    log_size = np.log(np.maximum(np.abs(values), 1e-12))
    turned = values / np.exp(log_size)
    gain = np.array([log_size[low:high].mean() for low, high in _BOUNDS])
    phase = np.array([np.angle(turned[low:high].mean()) for low, high in _BOUNDS])
    return 20 / np.log(10) * gain, np.degrees(np.unwrap(phase))
