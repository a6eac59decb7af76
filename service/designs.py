"""What is asked of the engine and what it answers: plain values between bytes on one side, tensors on the other."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from model_store.store import ModelVersion
from synthesis.gauss_newton import suited_profile
from synthesis.octave_bands import AMP_BANDS

Float32 = NDArray[np.float32]
Path = NDArray[np.float32] | NDArray[np.complex64]
"""One acoustic path as it was sent: complex64 is a one-sided spectrum, float32 a causal impulse response."""

Sign = Literal["minus", "plus"]
Basis = Literal["coherence", "model"]

DEFAULT_MAX_GAIN_DB = 30.0
MAX_GAIN_RANGE_DB = (-20.0, 60.0)

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""A batch runs on the smallest of these that holds it, so that few schedules are ever recorded."""

MAX_BATCH = BATCH_SIZES[-1]


def fitting_size(n_ears: int) -> int:
    """The smallest batch that holds so many ears (1 to 32)."""
    return next(size for size in BATCH_SIZES if size >= n_ears)


@dataclass(frozen=True)
class Recipe:
    """What designs must share to be made as one batch.

    model: reference of the store; None is the default model. n_updates: Gauss-Newton updates, 0 to 8.
    """

    model: str | None = None
    method: str = "prime"
    n_updates: int = 0
    profile: str = "fast"

    def for_ear(self, ear: Ear) -> Recipe:
        """With `fine` in the place of `fast` for an ear whose paths are finer than that one's grid."""
        n_samples = max(_n_points(path) for path in (ear.primary, ear.secondary))
        return replace(self, profile=suited_profile(self.profile, n_samples))


@dataclass(frozen=True, eq=False)
class Ear:
    """The acoustics of one request: finite numbers, not all zero, of a legal length.

    coherence [bins], 0 to 1, and reference_psd [bins], mean square per bin, lie on the spectra's grid, or on the
    design grid where both paths are impulse responses. sign: `plus` asks for the negated filter.
    """

    primary: Path
    secondary: Path
    coherence: Float32 | None = None
    reference_psd: Float32 | None = None
    sign: Sign = "minus"
    max_gain_db: float = DEFAULT_MAX_GAIN_DB


def _n_points(path: Path) -> int:
    """Samples of an impulse response, points of a spectrum's grid."""
    return 2 * (len(path) - 1) if np.iscomplexobj(path) else len(path)


@dataclass(frozen=True, eq=False)
class Figures:
    """A prediction on the host; names, shapes and units as in `synthesis.noise_reduction.Prediction`."""

    basis: Basis
    noise_reduction_db: Float32
    mean_noise_reduction_db: np.float32
    amplification_db: np.float32
    wide_amplification_db: np.float32
    out_of_band_low_db: np.float32
    out_of_band_high_db: np.float32
    max_gain_db: np.float32
    control_rms: np.float32

    @classmethod
    def of(cls, row: Float32, basis: Basis) -> Figures:
        """A row of `Schedule.predict` by its names; `noise_reduction_db` is a view of it."""
        n_bands = len(AMP_BANDS)
        return cls(basis, row[:n_bands], *row[n_bands:])

    def row(self) -> Float32:
        """The row again, float32 [bands + 7]."""
        return np.concatenate(
            (self.noise_reduction_db, [getattr(self, name) for name in _SCALARS]), dtype=np.float32
        )


_SCALARS = [each.name for each in fields(Figures)[2:]]


@dataclass(frozen=True, eq=False)
class Design:
    """The answer to one ear. Everything here is the caller's own: no buffer of the engine is referred to.

    taps: float32 [2048], negated where sign is `plus`. refinement: `applied`, `stopped`, `objective`, `step_scale`,
    `pcg_residual`. times_ms: the engine's stages, each over the batch that the design was part of; a stage that
    was not timed apart is absent. replaces: why this is not the generator's own filter, one of `net.REASONS`.
    """

    model: ModelVersion
    recipe: Recipe
    sign: Sign
    taps: Float32
    refinement: dict[str, Any]
    figures: Figures
    times_ms: dict[str, float]
    replaces: str | None = None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The figures of a filter that was brought along; times_ms as in Design."""

    model: ModelVersion
    figures: Figures
    times_ms: dict[str, float]
