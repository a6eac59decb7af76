"""Any backend, with what all of them share: paths of any scale, and a ceiling on the gain that is kept exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from synthesis.backends.cpu import CpuBackend
from synthesis.backends.path_level import at_unit_level, level_db
from synthesis.conventions import DESIGN_N_FFT
from synthesis.errors import SynthesisError
from synthesis.feedback import judge_loop, loop_gain, with_margins, worst_loop
from synthesis.gain_curve import TOLERANCE_DB, GainCurve, ceiling_db, excess_db, highest_db, lowest_db
from synthesis.interruption import check_interruption
from synthesis.latency import with_latency
from synthesis.octave_bands import WIDE_BANDS
from synthesis.profiles import FAST, FINE
from synthesis.types import (
    DEFAULT_MAX_GAIN_DB,
    WMMSE_TOLERANCE_DB,
    Backend,
    Complex64,
    Design,
    DesignOptions,
    Float32,
    ModelParameters,
    Prediction,
    Problem,
)
from synthesis.unknown_bands import quiet_db, unknown_bands

Answer = TypeVar("Answer")

LOUDEST_PRIMARY_DB = 12.0
"""Level of the primary path over the secondary. Of 30 measured ears it is -12 to 5 dB."""


QUIET_ROUNDS = 4
"""In each a ceiling is put on the unknown bands that the one before has made louder."""

QUIET_HALVINGS = 24
"""Of the whole filter, where no ceiling has kept them quiet."""


class BoundedBackend:
    """A backend around another one; what `create_backend` returns is always in it.

    It brings the paths to unit level before all else (`path_level`). The inner backend designs under a ceiling of
    30 dB (more where the loudspeaker is too quiet), or the request's highest value above that, which it keeps
    approximately; a filter that exceeds the request's ceiling is replaced by the best one that keeps it
    (core/ceiling.h, whatever the backend). So is one that makes a band louder of which the measurement says nothing
    (`unknown_bands`).
    """

    def __init__(self, inner: Backend, parameters: ModelParameters) -> None:
        """parameters: the same model's."""
        self.inner = inner
        self.name, self.max_batch, self.is_thread_safe = inner.name, inner.max_batch, inner.is_thread_safe
        self._parameters = parameters

    @cached_property
    def _core(self) -> CpuBackend:
        """What finds a filter under its ceiling for every backend."""
        return self.inner if isinstance(self.inner, CpuBackend) else CpuBackend(self._parameters)

    def design(self, problems: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        """As `Backend.design`; `Design.ceiling_cost_db` says what a ceiling has cost."""
        posed, faults = _at_unit_level(problems)
        found = self._bounded(list(posed.values()), options) if posed else []
        return _in_order(posed, found, faults)

    def predict(
        self, problems: Sequence[Problem], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """As `Backend.predict`; for filters given by their responses the core does it."""
        has_responses = any(np.iscomplexobj(each) for each in taps)
        found = self._predicted((self._core if has_responses else self.inner).predict, problems, taps)
        return [
            _with_unknown(problem, each) if isinstance(each, Prediction) else each
            for problem, each in zip(problems, found, strict=True)
        ]

    def evaluate(self, problems: Sequence[Problem], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """As `Backend.evaluate`."""
        return self._predicted(self.inner.evaluate, problems, taps)

    def _bounded(self, posed: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        loose = [
            replace(problem, max_gain_db=max(_loose_db(problem), highest_db(problem.max_gain_db)))
            for problem in posed
        ]
        designs = self.inner.design(loose, options)
        for place, (problem, design) in enumerate(zip(posed, designs, strict=True)):
            if isinstance(design, SynthesisError):
                continue
            prediction = _with_unknown(problem, design.prediction)
            is_named = prediction is not design.prediction
            if is_named:
                designs[place] = design = replace(design, prediction=prediction)
            if _is_above(problem, design):
                designs[place] = self._limited(problem, loose[place], design, options.profile)
            elif is_named and _quiet_db(with_latency(problem), design.taps) is not None:
                found = self._limited(problem, loose[place], design, options.profile)
                designs[place] = replace(found, ceiling_cost_db=0.0) if isinstance(found, Design) else found
            elif (
                design.wmmse is not None
                and design.wmmse.max_gain_db > lowest_db(problem.max_gain_db) + TOLERANCE_DB - WMMSE_TOLERANCE_DB
            ):
                designs[place] = replace(design, wmmse=None)  # under the ceiling it is another filter
        return designs

    def _limited(self, problem: Problem, loose: Problem, design: Design, profile: str) -> Design | SynthesisError:
        """The best filter below the problem's ceiling, with what it costs and takes. profile: of its updates."""
        began = perf_counter()
        limit_db = ceiling_db(problem.max_gain_db, DESIGN_N_FFT)
        delayed = with_latency(problem)
        profile = FINE.name if profile == FINE.name else FAST.name
        taps = design.taps
        try:
            if _is_above(problem, design):
                taps = self._core.limit_gain(replace(delayed, max_gain_db=np.inf), taps, limit_db, profile)
            for _ in range(QUIET_ROUNDS):
                check_interruption()
                if (louder_db := _quiet_db(delayed, taps)) is None:
                    break
                limit_db = np.minimum(limit_db, louder_db)
                taps = self._core.limit_gain(replace(delayed, max_gain_db=np.inf), taps, limit_db, profile)
            for _ in range(QUIET_HALVINGS):
                if _quiet_db(delayed, taps) is None:
                    break
                taps = taps * np.float32(0.5)
            loop = design.loop
            feedbacks = [each.feedback for each in delayed.conditions if each.feedback is not None]
            if loop is not None:
                taps = with_margins(taps, feedbacks, problem.min_gain_margin_db, problem.min_phase_margin_deg)
        except SynthesisError as error:
            return error
        if loop is not None:
            # What bends the response for the margins may lift it elsewhere by some hundredths.
            taps = taps * np.float32(min(1.0, 10 ** ((TOLERANCE_DB - excess_db(taps, limit_db)) / 20)))
            loop = worst_loop([judge_loop(loop_gain(taps, each)) for each in feedbacks], loop.loss_db)
        (prediction,) = self.inner.predict([loose], [taps])
        if isinstance(prediction, SynthesisError):
            return prediction
        conditions = zip(prediction.conditions, design.prediction.conditions, strict=True)
        left_out = tuple(replace(own, left_out=before.left_out) for own, before in conditions)
        prediction = replace(prediction, conditions=left_out, unknown_bands=design.prediction.unknown_bands)
        cost_db = design.prediction.mean_noise_reduction_db - prediction.mean_noise_reduction_db
        spent_ms = 1e3 * (perf_counter() - began)
        times_ms = design.times_ms | {"reconstruct": design.times_ms.get("reconstruct", 0.0) + spent_ms}
        return replace(
            design, taps=taps, prediction=prediction, times_ms=times_ms, loop=loop, ceiling_cost_db=cost_db
        )

    def _predicted(
        self,
        predict: Callable[[Sequence[Problem], Sequence[Any]], list[Prediction | SynthesisError]],
        problems: Sequence[Problem],
        taps: Sequence[Float32 | Complex64],
    ) -> list[Prediction | SynthesisError]:
        posed, faults = _at_unit_level([replace(problem, max_gain_db=DEFAULT_MAX_GAIN_DB) for problem in problems])
        found = predict(list(posed.values()), [taps[place] for place in posed]) if posed else []
        return _in_order(posed, found, faults)


def _quiet_db(problem: Problem, taps: Float32) -> NDArray[np.float64] | None:
    """The lowest `quiet_db` of all conditions; None if none has one. problem: its latency is in its paths."""
    found = [limit_db for each in problem.conditions if (limit_db := quiet_db(each, taps)) is not None]
    return np.min(found, axis=0) if found else None


def _with_unknown(problem: Problem, prediction: Prediction) -> Prediction:
    """The prediction, which names the bands that any condition leaves unknown."""
    found = {n for each in problem.conditions for n in np.flatnonzero(unknown_bands(each)).tolist()}
    return replace(prediction, unknown_bands=tuple(WIDE_BANDS[n] for n in sorted(found))) if found else prediction


def _at_unit_level(problems: Sequence[Problem]) -> tuple[dict[int, Problem], dict[int, SynthesisError]]:
    """The problems that can be designed for, and what is wrong with the others, by place."""
    posed: dict[int, Problem] = {}
    faults: dict[int, SynthesisError] = {}
    for place, problem in enumerate(problems):
        try:
            posed[place] = at_unit_level(problem)
        except SynthesisError as error:
            faults[place] = error
    return posed, faults


def _in_order(
    posed: dict[int, Problem], answers: Sequence[Answer | SynthesisError], faults: dict[int, SynthesisError]
) -> list[Answer | SynthesisError]:
    found: dict[int, Answer | SynthesisError] = dict(zip(posed, answers, strict=True))
    return [each for _, each in sorted((found | faults).items())]


def _loose_db(problem: Problem) -> float:
    """The default ceiling, or by as much above it as the secondary path is quieter than an problem's."""
    quieter_db = max(level_db(each.primary) - level_db(each.secondary) for each in problem.conditions)
    is_quiet = LOUDEST_PRIMARY_DB < quieter_db < np.inf
    return DEFAULT_MAX_GAIN_DB + (quieter_db - LOUDEST_PRIMARY_DB if is_quiet else 0.0)


def _is_above(problem: Problem, design: Design) -> bool:
    """Whether the filter exceeds its ceiling; its response is computed only if the largest |W| leaves that open."""
    if not design.prediction.max_gain_db > lowest_db(problem.max_gain_db) + TOLERANCE_DB:
        return False
    if not isinstance(problem.max_gain_db, GainCurve):
        return True
    return excess_db(design.taps, ceiling_db(problem.max_gain_db, DESIGN_N_FFT)) > TOLERANCE_DB
