"""The method in torch, which the other backends are tested against, in float32 or float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.backends.stage_clock import StageClock
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidPaths, SynthesisError
from prime_anc.method.methods import STARTS
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.predict import band_sums, not_finite, predict
from prime_anc.method.profiles import PROFILES, RefinementProfile
from prime_anc.method.start.generator import Generator
from prime_anc.method.synthesizer import Synthesizer
from prime_anc.method.types import (
    NOT_JUDGED,
    Complex64,
    DesignOptions,
    Draft,
    Float32,
    ModelParameters,
    Prediction,
    Problem,
    RefinementRecord,
    weighted,
    weights_of,
)
from prime_anc.method.update import Refinement

Result = TypeVar("Result")


def build_generator(parameters: ModelParameters) -> Generator:
    """Build a generator with copies of the weights: float32 on the CPU, in evaluation mode, without gradients.

    The process's random state is preserved: building draws weights, and a model may be loaded within a seeded run.
    """
    with torch.random.fork_rng(devices=[]):
        generator = Generator(parameters.config)
    generator.load_state_dict({name: torch.tensor(values) for name, values in parameters.weights.items()})
    return generator.eval().requires_grad_(False)


def build_synthesizer(
    parameters: ModelParameters, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Synthesizer:
    """Build a synthesizer that shares no memory with the parameters."""
    synthesizer = Synthesizer(
        build_generator(parameters),
        torch.tensor(parameters.reference_psd),
        torch.tensor(parameters.band_uncertainty),
    )
    return synthesizer.to(device=device, dtype=dtype).eval()


class ReferenceBackend:
    """`Backend` with torch's operators, single conditions batched; stateless.

    Results are rounded to float32 whatever the internal precision.
    """

    name = "reference"
    max_batch = 32
    is_thread_safe = True
    closes_loops = False
    predicts_wmmse = False

    def __init__(
        self,
        parameters: ModelParameters,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Load the model in dtype torch.float32 or torch.float64."""
        self.synthesizer = build_synthesizer(parameters, dtype, device)
        self._band_uncertainty = parameters.band_uncertainty

    def draft(
        self, problems: Sequence[Problem], options: DesignOptions, with_wmmse: bool
    ) -> list[Draft | SynthesisError]:
        """Draft as `Backend.draft`, without predicting WMMSE."""
        return draft_all(self.synthesizer, problems, options, lambda simple: self._draft(simple, options))

    def predict(
        self, problems: Sequence[Problem], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """Predict as `Backend.predict`."""
        with torch.inference_mode():
            given = _Conditions(problems, self.synthesizer)
            if not given.places:
                return given.in_order([])
            filters = torch.tensor(np.stack([taps[place] for place in given.places])).to(given.reference_psd)
            return given.in_order(self._predictions(given, filters))

    def _draft(self, problems: Sequence[Problem], options: DesignOptions) -> list[Draft | SynthesisError]:
        """Draft `is_simple` problems; InvalidPaths replaces one with an invalid, all-zero or too long path."""
        with torch.inference_mode():
            given = _Conditions(problems, self.synthesizer)
            if not given.places:
                return given.in_order([])
            clock = StageClock(given.paths.primary.device)
            taps = _initial_filter(self.synthesizer, given, options.method, clock)
            refinement = self.synthesizer.refine(
                given.paths,
                taps,
                options.n_updates,
                PROFILES[options.profile],
                given.max_gain_db,
                given.reference_psd,
                uncertainty=given.uncertainty,
            )
            clock.mark("refine")
            predictions = self._predictions(given, refinement.taps)
            clock.mark("predict")
            filters = refinement.taps.float().cpu().numpy()
            drafts = [
                prediction
                if isinstance(prediction, SynthesisError)
                else Draft(filters[item].copy(), _record(refinement, item), clock.times_ms(), prediction)
                for item, prediction in enumerate(predictions)
            ]
            return given.in_order(drafts)

    def _predictions(self, given: _Conditions, taps: Tensor) -> list[Prediction | SynthesisError]:
        """Predict all conditions; NonFiniteFilter replaces one whose taps or figures are not finite."""
        results: list[Prediction | SynthesisError] = []
        for item, paths in enumerate(given.conditions):
            row = slice(item, item + 1)
            sums = band_sums(
                given.paths.primary[row], given.paths.secondary[row], taps[row], given.reference_psd[row]
            )
            if not bool(torch.isfinite(taps[row]).all()):
                results.append(not_finite())
                continue
            known = paths.known or NOT_JUDGED
            results.append(predict(sums[0].double().cpu().numpy(), self._band_uncertainty, known))
        return results


def is_simple(problem: Problem, profile: RefinementProfile) -> bool:
    """Return whether a problem is one condition without weights of its own in J: it can be batched."""
    return len(problem.conditions) == 1 and weighted(profile, weights_of(problem)) == profile


def draft_all(
    synthesizer: Synthesizer,
    problems: Sequence[Problem],
    options: DesignOptions,
    draft_batch: Callable[[list[Problem]], list[Draft | SynthesisError]],
) -> list[Draft | SynthesisError]:
    """Draft all `is_simple` problems as one batch and the others by `joint_draft`; results are in order."""
    simple = [n for n, item in enumerate(problems) if is_simple(item, PROFILES[options.profile])]
    found = dict(zip(simple, draft_batch([problems[n] for n in simple]) if simple else [], strict=True))
    for n, problem in enumerate(problems):
        if n not in found:
            try:
                found[n] = joint_draft(synthesizer, problem, options)
            except SynthesisError as error:
                found[n] = error
    return [found[n] for n in range(len(problems))]


def joint_draft(synthesizer: Synthesizer, problem: Problem, options: DesignOptions) -> Draft:
    """Design one filter for all conditions of a problem with torch's operators, on the synthesizer's device.

    Raises
    ------
    InvalidPaths
        A path is unusable; names the condition.
    NonFiniteFilter
        The filter is not finite.
    """
    with torch.inference_mode():
        given = _Conditions(
            [replace(problem, conditions=(condition,)) for condition in problem.conditions], synthesizer
        )
        for n, fault in sorted(given.faults.items()):
            raise problem.named(fault, n)
        psd, max_gain_db = given.reference_psd[:1], given.max_gain_db[:1]
        weights = torch.tensor(problem.shares).to(psd)
        clock = StageClock(psd.device)
        taps = _initial_filter(synthesizer, given, options.method, clock, weights)
        refinement = synthesizer.refine(
            given.paths,
            taps,
            options.n_updates,
            weighted(PROFILES[options.profile], weights_of(problem)),
            max_gain_db,
            psd,
            weights,
            given.uncertainty,
        )
        clock.mark("refine")
        if not bool(torch.isfinite(refinement.taps).all()):
            raise not_finite()
        return Draft(_to_float32(refinement.taps[0]), _record(refinement, 0), clock.times_ms())


def _initial_filter(
    model: Synthesizer, given: _Conditions, method: str, clock: StageClock, weights: Tensor | None = None
) -> Tensor:
    """Return taps [batch, 2048] before updates; only stages of the method are timed.

    Parameters
    ----------
    weights
        `shares` of `Synthesizer` for the conditions of one problem.
    """
    if method in STARTS or method == "wmmse":
        psd = given.reference_psd if weights is None else given.reference_psd[:1]
        taps = model.initial_filter(given.paths, method, given.max_gain_db, psd, weights)
        clock.mark("generate")
        return taps
    ratio = model.generator.path_ratio(given.paths)
    clock.mark("path_ratio")
    correction = None
    if method == "prime":
        correction = model.generator(ratio.features)
        clock.mark("generate")
    limit = given.max_gain_db if weights is None else given.max_gain_db[:1]
    taps = model.generator.reconstruct(given.paths, ratio, correction, limit, weights)
    clock.mark("reconstruct")
    return taps


class _Conditions:
    """Single conditions on the model's device and in its precision, without unusable ones."""

    # Float [batch, 1].
    max_gain_db: Tensor
    # Float [batch, 16385].
    reference_psd: Tensor
    paths: AcousticPaths

    def __init__(self, problems: Sequence[Problem], synthesizer: Synthesizer) -> None:
        psd = synthesizer.reference_psd
        self.faults: dict[int, SynthesisError] = {}
        self._n_problems = len(problems)
        paths: dict[int, AcousticPaths] = {}
        for place, problem in enumerate(problems):
            (known,) = problem.conditions
            try:
                paths[place] = AcousticPaths(
                    _spectrum("primary", known.primary, psd), _spectrum("secondary", known.secondary, psd)
                ).validate()
            except SynthesisError as error:
                self.faults[place] = error
        # Indices in `problems` of the remaining conditions.
        self.places = list(paths)
        if not paths:
            return
        left = [problems[place] for place in self.places]
        self.conditions = [item.conditions[0] for item in left]
        self.paths = AcousticPaths.stack(list(paths.values()))
        # Float [batch, 2, 31].
        self.uncertainty = torch.stack(
            [_tensor((condition.known or NOT_JUDGED).assumed, psd) for condition in self.conditions]
        )
        self.max_gain_db = psd.new_tensor([[item.max_gain_db] for item in left])
        self.reference_psd = torch.stack(
            [psd if item.reference_psd is None else _tensor(item.reference_psd, psd) for item in left]
        )

    def in_order(self, results: Sequence[Result]) -> list[Result | SynthesisError]:
        """Return one result per problem: those of `places`, and the errors of the others."""
        found: dict[int, Result | SynthesisError] = dict(zip(self.places, results, strict=True))
        return [(found | self.faults)[place] for place in range(self._n_problems)]


def _spectrum(name: str, path: Float32 | Complex64, like: Tensor) -> Tensor:
    """Return a path on the design grid, complex [1, 16385], in the precision and on the device of `like`."""
    if not np.iscomplexobj(path):
        response = _tensor(path, like)
        if response.ndim != 1 or not 0 < len(response) <= DESIGN_N_FFT:
            raise InvalidPaths(
                f"{name}: its impulse response has the shape {tuple(response.shape)}; "
                f"give 1 to {DESIGN_N_FFT} samples",
                name,
            )
        return torch.fft.rfft(response[None], n=DESIGN_N_FFT)
    if path.shape != (N_BINS,):
        raise InvalidPaths(f"{name}: its spectrum has the shape {path.shape}; give {N_BINS} bins", name)
    complex_type = torch.complex128 if like.dtype == torch.float64 else torch.complex64
    return torch.tensor(path, dtype=complex_type, device=like.device)[None]


def _tensor(values: Float32 | Complex64, like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def _to_float32(tensor: Tensor) -> Float32:
    array: Float32 = tensor.detach().to("cpu", torch.float32).contiguous().numpy().copy()
    return array


def _record(refinement: Refinement, item: int) -> RefinementRecord:
    return RefinementRecord(**refinement.record(item))  # type: ignore[arg-type]
