"""The compiled core with one model: called without Python's lock, by any number of threads."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.core.library import core, core_parameters, ffi, pointer_to
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from prime_anc.method.errors import InvalidPaths, SynthesisError
from prime_anc.method.gain_curve import TOLERANCE_DB
from prime_anc.method.methods import STARTS, first_taps
from prime_anc.method.posing import OpenLoop
from prime_anc.method.predict import not_finite
from prime_anc.method.profiles import PRECONDITIONERS, STOP_REASONS, RefinementProfile
from prime_anc.method.types import (
    BASES,
    Complex64,
    DesignOptions,
    Filter,
    Float32,
    Known,
    ModelParameters,
    Path,
    Paths,
    Prediction,
    RefinementRecord,
)

# The core's numbers for the methods that it starts itself.
_NATIVE = {"prime": 0, "ratio_base": 1, "wmmse": 2}
_TIMES = ("path_ratio", "generate", "reconstruct")

# Weights of the bands in J's mean.
_ALIKE = tuple(float(band in NR_BANDS) for band in WIDE_BANDS)

# Weights in J, by the names of `ObjectiveProfile`.
_WEIGHTS = [name for name, _ in ffi.typeof("objective_weights").fields]

# Figures behind the bands, in the order of the fields of `Prediction`.
_FIGURES = [name for name, _ in ffi.typeof("prediction_figures").fields[2:-1]]


class Core:
    """The core: all steps of a design, in float32 and without torch.

    Each call takes a workspace of about 6 MB, which is kept for later calls.
    """

    name = "cpu"
    max_batch = 1024
    is_thread_safe = True

    def __init__(self, parameters: ModelParameters) -> None:
        """Load the core and give it a copy of the model. Raises RuntimeError if the core cannot be loaded."""
        self._core = core()
        given, arrays = core_parameters(parameters)
        self._model = self._core.prime_model_create(given)
        del arrays  # until here: `given` points into them
        if not self._model:
            raise MemoryError("no memory for the model")
        self._workspaces: deque[Any] = deque()

    def __del__(self) -> None:
        for workspace in getattr(self, "_workspaces", ()):
            self._core.prime_workspace_free(workspace)
        if getattr(self, "_model", None):
            self._core.prime_model_free(self._model)

    def pose(
        self,
        paths: Paths,
        reference_psd: Float32,
        *,
        is_device: bool = False,
        out: tuple[Complex64, Complex64] | None = None,
    ) -> tuple[Complex64, Complex64, Known]:
        """Transform a condition's paths, and judge what is unknown of them.

        Parameters
        ----------
        is_device
            Whether they are like those of the model's listeners.
        out
            Room for the spectra, contiguous [16385] each; None: new arrays.

        Returns
        -------
        primary, secondary
            Spectra on the design grid, [16385].
        known
            By coherence, listeners or the ends of the responses.

        Raises
        ------
        InvalidPaths
            A path is all zero, not finite, or of a wrong shape.
        """
        primary, n_primary = _path(paths.primary, "primary")
        secondary, n_secondary = _path(paths.secondary, "secondary")
        coherence = None if paths.coherence is None else _float32(paths.coherence, N_BINS)
        arrays = *map(pointer_to, (primary, secondary, coherence, reference_psd)), n_primary, n_secondary, is_device
        spectra = out or (np.empty(N_BINS, np.complex64), np.empty(N_BINS, np.complex64))
        known = ffi.new("prime_knowledge *")
        with self._workspace() as workspace:
            outputs = pointer_to(spectra[0]), pointer_to(spectra[1]), known
            fault = self._core.prime_pose(self._model, workspace, ffi.new("prime_paths *", arrays), *outputs)
            if fault:
                name = ("primary", "secondary")[fault - 1]
                message = f"{name}: all values are zero, or one is NaN or infinite; measure the path again"
                raise InvalidPaths(message, name)
        silent = np.array(list(known.silent), bool)
        judged = Known(
            np.frombuffer(ffi.buffer(known.uncertainty), np.float32).reshape(2, -1).copy(),
            BASES[known.basis],
            known.ends_interval,
            silent if silent.any() else None,
        )
        return *spectra, judged

    def filters(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        """As `Backend.filters`: start and updates of one problem after another."""
        return [self._filter(problem, options) for problem in problems]

    def _filter(self, problem: OpenLoop, options: DesignOptions) -> Filter | SynthesisError:
        taps, times_ms = self.start(problem, options.method)
        began = perf_counter()
        record = self.update(problem, taps, options)
        times_ms["refine"] = 1e3 * (perf_counter() - began)
        is_finite = np.isfinite(taps).all() and all(map(math.isfinite, record.objective))
        return Filter(taps, record, times_ms) if is_finite else not_finite()

    def start(self, problem: OpenLoop, method: str) -> tuple[Float32, dict[str, float]]:
        """Make first taps, [2048], by one of METHODS: theory (2) to (11); also the times of the stages (ms)."""
        if method in STARTS:
            began = perf_counter()
            taps = first_taps(method, problem.primary, problem.secondary, problem.shares).astype(np.float32)
            return taps, {"generate": 1e3 * (perf_counter() - began)}
        taps, times_ms = np.empty(N_TAPS, np.float32), np.empty(len(_TIMES))
        with self._workspace(len(problem.shares)) as workspace:
            outputs = pointer_to(taps), pointer_to(times_ms)
            self._core.prime_start(self._model, workspace, _problem(problem), _NATIVE[method], *outputs)
        return taps, {name: ms for name, ms in zip(_TIMES, times_ms.tolist(), strict=True) if not math.isnan(ms)}

    def update(self, problem: OpenLoop, taps: Float32, options: DesignOptions) -> RefinementRecord:
        """Update taps in place: theory (12) to (17)."""
        profile, record = _profile(problem.profile(options.profile)), ffi.new("refinement_record *")
        with self._workspace(len(problem.shares)) as workspace:
            arguments = _problem(problem), profile, options.n_updates, pointer_to(taps), record
            self._core.prime_update(workspace, *arguments)
        n = record.applied
        lists = list(record.objective)[: n + 1], list(record.step_scale)[:n], list(record.pcg_residual)[:n]
        return RefinementRecord(n, STOP_REASONS[record.stopped], *lists)

    def limit(self, problem: OpenLoop, taps: Float32, limit_db: NDArray[np.float64]) -> Float32:
        """Find the best filter that keeps a ceiling on |W|: theory (18), core/c/ceiling.h.

        The search runs on the grid of `fine`: on that of `fast` the filters of 8192-sample paths lose 1 to 3 dB.

        Parameters
        ----------
        taps
            What the search starts from, [2048].
        limit_db
            The ceiling per bin of the design grid, [16385].

        Returns
        -------
        Float32
            Taps, [2048]; |W| exceeds the ceiling by at most TOLERANCE_DB.

        Raises
        ------
        NonFiniteFilter
            The search fails.
        """
        found = taps.copy()
        inverse = _float32(10 ** (-limit_db / 20), N_BINS)
        with self._workspace(len(problem.shares)) as workspace:
            arguments = _problem(problem), _profile(problem.profile("fine")), pointer_to(inverse)
            self._core.prime_limit(workspace, *arguments, 10 ** (TOLERANCE_DB / 2 / 20), pointer_to(found))
        if not np.isfinite(found).all():
            raise not_finite()
        return found

    def wiener(self, problem: OpenLoop, taps: Float32) -> Float32:
        """Find about WMMSE's filter, within 0.05 dB of noise reduction, from taps [2048] of a good one: theory (11)."""
        found = taps.copy()
        with self._workspace(len(problem.shares)) as workspace:
            self._core.prime_wiener(workspace, _problem(problem), pointer_to(found))
        return found

    def predict(
        self, primary: Complex64, secondary: Complex64, reference_psd: Float32, known: Known, taps: Path
    ) -> Prediction:
        """Predict a filter's effect on one pair of paths: theory (21) to (23).

        Parameters
        ----------
        primary, secondary
            Spectra on the design grid, [16385].
        reference_psd
            Mean square per bin, [16385].
        known
            What is known of the paths.
        taps
            Filter, taps [2048] or response on the design grid.

        Raises
        ------
        NonFiniteFilter
            A figure is not finite.
        """
        return self._predicted(primary, secondary, reference_psd, known, taps)[0]

    def _predicted(
        self, primary: Complex64, secondary: Complex64, reference_psd: Float32, known: Known, taps: Path
    ) -> tuple[Prediction, NDArray[np.float64]]:
        """Return the prediction, and the sums per band from which it follows."""
        given, n_taps = _path(taps, "taps")
        figures, sums = ffi.new("prediction_figures *"), np.empty(core().N_SUMS)
        judged = ffi.new("prime_knowledge *")
        judged.basis, judged.ends_interval = BASES.index(known.basis), known.ends_interval_db
        ffi.memmove(judged.uncertainty, _float32(known.uncertainty, 2, len(WIDE_BANDS)), 2 * 4 * len(WIDE_BANDS))
        if known.silent is not None:
            judged.silent = known.silent.tolist()
        with self._workspace() as workspace:
            arrays = [pointer_to(values) for values in (primary, secondary, reference_psd)]
            outputs = pointer_to(sums), figures
            self._core.prime_predict(self._model, workspace, *arrays, judged, pointer_to(given), n_taps, *outputs)
        if not figures.is_finite:
            raise not_finite()
        bands, least = (
            np.array(list(item), np.float32) for item in (figures.band_reduction, figures.least_reduction)
        )
        return Prediction(known.stated_basis, bands, least, *(getattr(figures, name) for name in _FIGURES)), sums

    @contextmanager
    def _workspace(self, n_conditions: int = 1) -> Iterator[Any]:
        """A workspace that no other thread uses, with room for `n_conditions`; thrown away if the block raises."""
        try:
            workspace = self._workspaces.pop()
        except IndexError:
            workspace = self._core.prime_workspace_create(self._model)
            if not workspace:
                raise MemoryError("no memory for a workspace") from None
        try:
            if not self._core.prime_workspace_reserve(workspace, n_conditions):
                raise MemoryError(f"no memory for a workspace of {n_conditions} conditions")
            yield workspace
        except BaseException:
            self._core.prime_workspace_free(workspace)
            raise
        self._workspaces.append(workspace)


def _problem(problem: OpenLoop) -> Any:
    """Lay out a problem, which the caller keeps alive."""
    arrays = problem.primary, problem.secondary, problem.uncertainty, problem.reference_psd, problem.shares
    pointers = [pointer_to(values) for values in arrays]
    return ffi.new("prime_problem *", (*pointers, len(problem.shares), problem.loose_db))


def _path(path: NDArray[Any], name: str) -> tuple[NDArray[Any], int]:
    """Return a path as the core reads it, and its number of samples, or 0 for a spectrum."""
    if np.iscomplexobj(path):
        if path.shape != (N_BINS,):
            raise InvalidPaths(f"{name}: a spectrum of {path.shape} values was given; {N_BINS} are expected", name)
        return np.ascontiguousarray(path, np.complex64), 0
    if path.ndim != 1 or not 0 < len(path) <= DESIGN_N_FFT:
        raise InvalidPaths(
            f"{name}: an impulse response of {path.shape} was given; 1 to {DESIGN_N_FFT} samples are expected", name
        )
    # Zeros at the end change nothing but the order in which a transform adds, and with it the rounding.
    n_samples = len(path) if path[-1] else max(len(np.trim_zeros(path, "b")), 1)
    return np.ascontiguousarray(path, np.float32), n_samples


def _float32(values: NDArray[np.floating], *shape: int) -> Float32:
    if values.shape != shape:
        raise ValueError(f"{values.shape} values were given; {shape} are expected")
    return np.ascontiguousarray(values, np.float32)


@lru_cache(64)  # the core only reads it
def _profile(profile: RefinementProfile) -> Any:
    bands = profile.risk_bands
    weights = {name: getattr(profile, name) for name in _WEIGHTS} | {"band_weights": profile.band_weights or _ALIKE}
    numbers = profile.damping, profile.step_cap or 0.0, profile.ceiling_weight, profile.tolerance
    preconditioner = PRECONDITIONERS.index(profile.preconditioner)
    counts = WIDE_BANDS.index(bands[0]), len(bands), preconditioner, profile.n_iterations, profile.settles
    return ffi.new("refinement_profile *", (profile.n_fft, *counts, *numbers, weights))
