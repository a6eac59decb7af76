"""The backend `cpu`: calls the compiled core, one problem per call, without holding Python's lock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref
from dataclasses import replace
from functools import lru_cache
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from prime_anc.core.beside import of_both
from prime_anc.core.library import (
    Bands,
    Figures,
    Input,
    Judgement,
    Made,
    Profile,
    Result,
    Weights,
    core,
    core_parameters,
)
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from prime_anc.method.errors import InvalidPaths, NonFiniteFilter, SynthesisError
from prime_anc.method.gain_curve import TOLERANCE_DB
from prime_anc.method.methods import STARTS
from prime_anc.method.plausibility import MAX_LIKENESS, Comparison
from prime_anc.method.predict import not_finite
from prime_anc.method.profiles import FINE, PRECONDITIONERS, PROFILES, STOP_REASONS, RefinementProfile
from prime_anc.method.types import (
    BASES,
    MAX_CONDITIONS,
    NOT_JUDGED,
    UPDATES_BRING_DB,
    WMMSE_TOLERANCE_DB,
    Complex64,
    DesignOptions,
    Draft,
    Float32,
    Known,
    ModelParameters,
    Paths,
    Prediction,
    Problem,
    RefinementRecord,
    WmmsePrediction,
    weighted,
    weights_of,
)

# The core's numbers for the methods that it computes itself, and for taps of `STARTS`, which it only refines.
_NATIVE, _START_GIVEN = {"prime": 0, "ratio_base": 1, "wmmse": 2}, 3

# Weights of the bands in J's mean.
_ALIKE = tuple(float(band in NR_BANDS) for band in WIDE_BANDS)

_STAGES = ("decode", "path_ratio", "generate", "reconstruct", "refine", "predict")


class CpuBackend:
    """`Backend` for a CPU: float32, no torch. Any number of threads may call at once; each call takes a workspace
    of about 6 MB, which is kept for later calls."""

    name = "cpu"
    max_batch = 1024
    is_thread_safe = True
    closes_loops = True
    predicts_wmmse = True

    def __init__(self, parameters: ModelParameters) -> None:
        """Load the core and give it a copy of the model. Raises RuntimeError if the core cannot be loaded."""
        self._core = core()
        self._has_support = parameters.support is not None
        self._psd = parameters.reference_psd
        given, arrays = core_parameters(parameters)
        self._model = self._core.prime_model_create(byref(given))
        del arrays  # until here: `given` points into them
        if not self._model:
            raise MemoryError("no memory for the model")
        self._workspaces: deque[int] = deque()

    def __del__(self) -> None:
        for workspace in getattr(self, "_workspaces", ()):
            self._core.prime_workspace_free(workspace)
        if getattr(self, "_model", None):
            self._core.prime_model_free(self._model)

    def draft(
        self, problems: Sequence[Problem], options: DesignOptions, with_wmmse: bool
    ) -> list[Draft | SynthesisError]:
        """As `Backend.draft`: one call of the core for each problem."""
        return [self._draft(problem, options, with_wmmse) for problem in problems]

    def predict(
        self, problems: Sequence[Problem], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """As `Backend.predict`; a filter may also be its response on the design grid, complex64 [16385]."""
        return [self._predict(*item) for item in zip(problems, taps, strict=True)]

    def judge(self, paths: Paths, reference_psd: Float32 | None) -> Known:
        """Judge what is unknown of a condition's paths as sent, and compare them with the support's.

        Raises
        ------
        InvalidPaths
            A path is unusable.
        """
        problem, found = Problem((paths,), reference_psd), Judgement()
        given = _Given(problem, self._psd)
        with self._workspace() as workspace:
            fault = self._core.prime_judge_paths(self._model, workspace, given.inputs, byref(found))
            _raise_if_unusable(fault, problem)
        compared = found.explanation
        numbers = compared.distance, compared.score, bool(compared.is_reversed), compared.change, compared.fit
        explained = *numbers, compared.level, compared.delay, compared.primary_delay
        is_right = bool(compared.is_right) and compared.likeness <= MAX_LIKENESS**2
        comparison = Comparison(compared.likeness, explained, is_right)
        return Known(
            np.array(found.uncertainty, np.float32).reshape(2, -1),
            BASES[found.basis],
            found.ends_interval,
            np.array(found.silent, bool) if found.n_silent else None,
            None if self._has_support and math.isnan(compared.distance) else comparison,
        )

    def _draft(self, problem: Problem, options: DesignOptions, with_wmmse: bool) -> Draft | SynthesisError:
        """The core's result has a prediction only of a single condition."""
        conditions, result, start_ms = problem.conditions, Result(), None
        is_single = len(conditions) == 1
        method = _NATIVE.get(options.method, _START_GIVEN)
        margin_db = math.nan
        if with_wmmse and is_single:
            # In a controller's loop, updates of WMMSE take longer than the design and gain 0.03 dB.
            brings_db = -math.inf if conditions[0].inner is not None else UPDATES_BRING_DB[options.n_updates]
            margin_db = brings_db + WMMSE_TOLERANCE_DB
        try:
            given = _Given(problem, self._psd)
            profile = weighted(PROFILES[options.profile], weights_of(problem))
            chosen = _core_profile(profile)
            if start := STARTS.get(options.method):
                began = perf_counter()
                starts = [start(condition.primary, condition.secondary) for condition in conditions]
                _write_taps(result, np.tensordot(problem.shares, starts, 1))
                start_ms = 1e3 * (perf_counter() - began)
            arguments = len(conditions), method, byref(chosen), options.n_updates, margin_db, byref(result)
            with self._workspace(len(conditions)) as workspace:
                fault = self._core.prime_design(self._model, workspace, given.inputs, *arguments)
                _raise_if_unusable(fault, problem)
                draft = _read_draft(problem, result.made, _read_times(result, start_ms))
        except SynthesisError as error:
            return error
        if not is_single:
            return draft
        rival = None
        if result.has_rival:
            with suppress(NonFiniteFilter):
                rival = _read_draft(problem, result.rival, {})
        return draft._replace(wmmse=_read_rival(result), rival=rival)

    def _predict(self, problem: Problem, taps: Float32 | Complex64) -> Prediction | SynthesisError:
        result, response = Result(), None
        if np.iscomplexobj(taps):
            response = np.ascontiguousarray(taps, np.complex64)
        else:
            _write_taps(result, taps.real)
        try:
            given = _Given(problem, self._psd)
            with self._workspace() as workspace:
                fault = self._core.prime_predict(
                    self._model, workspace, given.inputs, _address(response), byref(result)
                )
                _raise_if_unusable(fault, problem)
                return _read_prediction(problem.conditions[0], result.figures)
        except (InvalidPaths, NonFiniteFilter) as error:
            return error

    def limit_gain(self, problem: Problem, taps: Float32, limit_db: NDArray[np.float64]) -> Float32:
        """Find the best filter that keeps a ceiling on |W|: theory (18), core/ceiling.h.

        The search runs on the grid of `fine`: on that of `fast` the filters of 8192-sample paths lose 1 to 3 dB.

        Parameters
        ----------
        problem
            Its latency, feedback and ceiling are ignored.
        taps
            What the search starts from.
        limit_db
            The ceiling per bin of the design grid, [16385].

        Returns
        -------
        Float32
            Taps, [2048]; |W| exceeds the ceiling by at most TOLERANCE_DB.

        Raises
        ------
        InvalidPaths, NonFiniteFilter
            For unusable paths, or if the search fails.
        """
        result = Result()
        _write_taps(result, taps)
        inverse = _float32(10 ** (-limit_db / 20), N_BINS)
        given = _Given(replace(problem, max_gain_db=math.inf), self._psd)
        n_conditions = len(problem.conditions)
        max_excess = 10 ** (TOLERANCE_DB / 2 / 20)
        with self._workspace(n_conditions) as workspace:
            chosen = _core_profile(weighted(FINE, weights_of(problem)))
            arguments = byref(chosen), _address(inverse), max_excess, byref(result)
            fault = self._core.prime_limit_gain(self._model, workspace, given.inputs, n_conditions, *arguments)
            _raise_if_unusable(fault, problem)
            return _read_taps(result)

    @contextmanager
    def _workspace(self, n_conditions: int = 1) -> Iterator[int]:
        """A workspace that no other thread uses, with room for `n_conditions`.

        It is kept for later calls unless the block raises: what a failed design has left must reach no other.
        """
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


class _Given:
    """A problem's conditions as the core reads them."""

    def __init__(self, problem: Problem, known_psd: Float32 | None = None) -> None:
        """Raise InvalidPaths for paths of a wrong shape, ValueError for other arrays of a wrong shape or more than
        MAX_CONDITIONS conditions. known_psd: of the model, which the core has."""
        n_conditions = len(problem.conditions)
        if n_conditions > MAX_CONDITIONS:
            raise ValueError(f"{n_conditions} conditions were given; {MAX_CONDITIONS} at most are expected")
        shares = problem.shares.tolist() if n_conditions > 1 else [1.0]
        # What `inputs` points into.
        self._arrays: list[NDArray[np.generic] | None] = []
        self.inputs = (Input * n_conditions)()
        psd = problem.reference_psd
        psd = None if psd is None or psd is known_psd else _float32(psd, N_BINS)
        for n, paths in enumerate(problem.conditions):
            try:
                primary, n_primary = _core_path(paths.primary, "primary")
                secondary, n_secondary = _core_path(paths.secondary, "secondary")
            except InvalidPaths as error:
                raise problem.named(error, n) from None
            coherence = None if paths.coherence is None else _float32(paths.coherence, N_BINS)
            known = paths.known or NOT_JUDGED
            uncertainty = _float32(known.uncertainty, 2, len(WIDE_BANDS))
            assumed = _float32(known.assumed, 2, len(WIDE_BANDS))
            silent = None if known.silent is None else known.silent.astype(np.uint8)
            loop, controller, level = None, None, 1.0
            if problem.controller is not None and paths.inner is not None:
                loop, controller, level = paths.inner.gain, problem.controller.in_single, paths.inner.level
            arrays = primary, secondary, coherence, psd, uncertainty, assumed, loop, controller, silent
            self._arrays += arrays
            numbers = n_primary, n_secondary, BASES.index(known.basis), problem.max_gain_db, level
            self.inputs[n] = Input(*map(_address, arrays), *numbers, known.ends_interval_db, shares[n])


def _address(values: NDArray[np.generic] | None) -> int | None:
    """Where an array lies; the caller keeps it alive."""
    return None if values is None else int(values.__array_interface__["data"][0])


def _raise_if_unusable(fault: int, problem: Problem) -> None:
    """Raise InvalidPaths if the core has refused a path."""
    if fault:
        condition, which = divmod(fault - 1, 2)
        name = ("primary", "secondary")[which]
        message = f"{name}: all values are zero, or one is NaN or infinite; measure the path again"
        raise problem.named(InvalidPaths(message, name), condition)


def _write_taps(result: Result, taps: NDArray[np.floating]) -> None:
    np.ctypeslib.as_array(result.taps)[:] = _float32(taps, N_TAPS)  # a slice of `taps` takes ten times as long


def _read_taps(made: Made | Result) -> Float32:
    """A copy of the taps. Raises NonFiniteFilter."""
    taps = np.array(made.taps, np.float32)
    if not np.isfinite(taps).all():
        raise not_finite()
    return taps


def _read_prediction(paths: Paths, figures: Figures) -> Prediction:
    """Raises NonFiniteFilter."""
    if not figures.is_finite:
        raise not_finite()
    bands, least = (np.array(item, np.float32) for item in (figures.bands, figures.least_bands))
    return Prediction((paths.known or NOT_JUDGED).stated_basis, bands, least, *figures.others)


def _read_rival(result: Result) -> WmmsePrediction | None:
    if math.isnan(result.rival_mean_db):
        return None
    return WmmsePrediction(result.rival_mean_db, result.rival_max_gain_db)


def _read_draft(problem: Problem, made: Made, times_ms: dict[str, float]) -> Draft:
    """A filter with its updates and, of a single condition, its predictions. Raises NonFiniteFilter, also where J is
    not finite."""
    taps = _read_taps(made)
    record, n = made.record, made.record.applied
    lists = record.objective[: n + 1], record.step_scale[:n], record.pcg_residual[:n]
    if not all(map(math.isfinite, lists[0])):
        raise not_finite()
    draft = Draft(taps, RefinementRecord(n, STOP_REASONS[record.stopped], *lists), times_ms)
    if len(problem.conditions) > 1:
        return draft
    paths, both = problem.conditions[0], None
    if problem.controller is not None:
        both = of_both(_read_prediction(paths, made.alone), made.both, made.playback_db)
    return draft._replace(prediction=_read_prediction(paths, made.figures), both=both)


def _read_times(result: Result, start_ms: float | None) -> dict[str, float]:
    times_ms = {stage: ms for stage, ms in zip(_STAGES, result.times_ms, strict=True) if not math.isnan(ms)}
    return times_ms if start_ms is None else times_ms | {"generate": start_ms}


def _core_path(path: NDArray[np.generic], name: str) -> tuple[NDArray[np.generic], int]:
    """A path as the core reads it, and its number of samples, or 0 for a spectrum."""
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
def _core_profile(profile: RefinementProfile) -> Profile:
    bands = profile.risk_bands
    weights = {
        name: kind(*(getattr(profile, name) or _ALIKE)) if kind is Bands else getattr(profile, name)
        for name, kind, *_ in Weights._fields_
    }
    return Profile(
        profile.n_fft,
        WIDE_BANDS.index(bands[0]),
        len(bands),
        PRECONDITIONERS.index(profile.preconditioner),
        profile.n_iterations,
        profile.settles,
        profile.plane_iterations,
        profile.damping,
        profile.step_cap or 0.0,
        profile.ceiling_weight,
        profile.tolerance,
        Weights(**weights),
    )
