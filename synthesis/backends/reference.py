"""The method as it is, in torch: what the other backends are tested against, in float32 or float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from measurement.prior import PathPrior
from synthesis import noise_reduction
from synthesis.backends.conditions import ConditionsBackend, Filter, named, shares
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidPaths, SynthesisError
from synthesis.gauss_newton import Refinement
from synthesis.generator import Generator
from synthesis.methods import STARTS
from synthesis.paths import AcousticPaths
from synthesis.prediction import not_finite, predict
from synthesis.synthesizer import Synthesizer
from synthesis.types import (
    Complex64,
    Design,
    DesignOptions,
    Float32,
    ModelParameters,
    Paths,
    Prediction,
    Problem,
    RefinementRecord,
)
from synthesis.unknown_bands import unknown_bands

if TYPE_CHECKING:
    from measurement.prior import PathPrior

Answer = TypeVar("Answer")


def build_generator(parameters: ModelParameters) -> Generator:
    """A generator that holds copies of the weights: float32 on the CPU, in evaluation mode, without gradients.

    The process's random state is left as it was: building draws fresh weights, and a model may be loaded in the
    middle of a seeded run.
    """
    with torch.random.fork_rng(devices=[]):
        generator = Generator(parameters.config)
    generator.load_state_dict({name: torch.tensor(values) for name, values in parameters.weights.items()})
    return generator.eval().requires_grad_(False)


def build_synthesizer(
    parameters: ModelParameters, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Synthesizer:
    """A synthesizer of its own: it shares no memory with the parameters."""
    synthesizer = Synthesizer(
        build_generator(parameters),
        torch.tensor(parameters.reference_psd),
        torch.tensor(parameters.band_uncertainty),
    )
    return synthesizer.to(device=device, dtype=dtype).eval()


def model_parameters(
    generator: Generator, reference_psd: Tensor, band_uncertainty: Tensor, path_prior: PathPrior | None = None
) -> ModelParameters:
    """The reverse of `build_synthesizer`: copies as float32 arrays."""
    return ModelParameters(
        config=generator.config,
        weights={name: _to_float32(tensor) for name, tensor in generator.state_dict().items()},
        reference_psd=_to_float32(reference_psd),
        band_uncertainty=_to_float32(band_uncertainty),
        path_prior=path_prior,
    )


class ReferenceBackend(ConditionsBackend):
    """`Backend` by torch's operators, all ears of a call side by side.

    Answers are rounded to float32 whatever the precision inside. Holds no state between calls.
    """

    name = "reference"
    max_batch = 32
    is_thread_safe = True

    def __init__(
        self,
        parameters: ModelParameters,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """dtype: torch.float32 or torch.float64, of everything between input and answer."""
        self.synthesizer = build_synthesizer(parameters, dtype, device)
        self._band_uncertainty = parameters.band_uncertainty
        self.support = parameters.support

    def _design(self, inputs: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        """A path that is not finite, all zero or too long is InvalidPaths in its place."""
        with torch.inference_mode():
            if len(inputs) > 1 and any(unknown_bands(each.conditions[0]).any() for each in inputs):
                return [each for ear in inputs for each in self._design([ear], options)]
            ears = _Ears(inputs, self.synthesizer)
            if not ears.places:
                return ears.in_order([])
            clock = _Clock(ears.paths.primary.device)
            taps = _initial_filter(self.synthesizer, ears, options.method, clock)
            refinement = self.synthesizer.refine(
                ears.paths,
                taps,
                options.n_updates,
                options.profile,
                ears.max_gain_db,
                ears.reference_psd,
                unknown=_unknown_of([each.conditions[0] for each in inputs], ears.paths),
            )
            clock.mark("refine")
            predictions = self._predictions(ears, refinement.taps)
            clock.mark("predict")
            filters = refinement.taps.float().cpu().numpy()
            answers = [
                prediction
                if isinstance(prediction, SynthesisError)
                else Design(filters[item].copy(), _record(refinement, item), prediction, dict(clock.times_ms))
                for item, prediction in enumerate(predictions)
            ]
            return ears.in_order(answers)

    def _joint_filter(self, ear: Problem, options: DesignOptions) -> Filter:
        return joint_filter(self.synthesizer, ear, options)

    def _predict(self, inputs: Sequence[Problem], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        return self._predict_given(inputs, taps, paths_are_exact=False)

    def _evaluate(self, inputs: Sequence[Problem], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        return self._predict_given(inputs, taps, paths_are_exact=True)

    def _predict_given(
        self, inputs: Sequence[Problem], taps: Sequence[Float32], *, paths_are_exact: bool
    ) -> list[Prediction | SynthesisError]:
        with torch.inference_mode():
            ears = _Ears(inputs, self.synthesizer)
            if not ears.places:
                return ears.in_order([])
            filters = torch.tensor(np.stack([taps[place] for place in ears.places])).to(ears.reference_psd)
            return ears.in_order(self._predictions(ears, filters, paths_are_exact=paths_are_exact))

    def _predictions(
        self, ears: _Ears, taps: Tensor, *, paths_are_exact: bool = False
    ) -> list[Prediction | SynthesisError]:
        """One for each ear of `ears`, NonFiniteFilter where its taps or figures are not finite."""
        answers: list[Prediction | SynthesisError] = []
        for item, coherence in enumerate(ears.coherence):
            own = slice(item, item + 1)
            sums = noise_reduction.band_sums(
                ears.paths[own], taps[own], ears.reference_psd[own], coherence, is_true=paths_are_exact
            )
            if not bool(torch.isfinite(taps[own]).all()):
                answers.append(not_finite())
                continue
            answers.append(
                predict(
                    sums[0].double().cpu().numpy(),
                    self._band_uncertainty,
                    has_coherence=coherence is not None,
                    uncertainty=ears.uncertainty[item],
                    resembles=ears.resembles[item] is not False,
                    is_true=paths_are_exact,
                )
            )
        return answers


def joint_filter(synthesizer: Synthesizer, ear: Problem, options: DesignOptions) -> Filter:
    """One filter for all conditions of an ear by torch's operators, on the synthesizer's device.

    Raises InvalidPaths, which names the condition, and NonFiniteFilter.
    """
    with torch.inference_mode():
        alone = [replace(ear, conditions=(each,)) for each in ear.conditions]
        ears = _Ears(alone, synthesizer)
        for n, fault in sorted(ears.faults.items()):
            raise named(fault, ear, n)
        psd, max_gain_db = ears.reference_psd[:1], ears.max_gain_db[:1]
        weights = torch.tensor(shares(ear)).to(psd)
        clock = _Clock(psd.device)
        taps = _initial_filter(synthesizer, ears, options.method, clock, weights)
        refinement = synthesizer.refine(
            ears.paths,
            taps,
            options.n_updates,
            options.profile,
            max_gain_db,
            psd,
            weights,
            _unknown_of(ear.conditions, ears.paths),
        )
        clock.mark("refine")
        if not bool(torch.isfinite(refinement.taps).all()):
            raise not_finite()
        return _to_float32(refinement.taps[0]), _record(refinement, 0), dict(clock.times_ms)


def _unknown_of(conditions: Sequence[Paths], paths: AcousticPaths) -> Tensor | None:
    """Bands of which nothing is known, [n_conditions, 31]; None if there are none."""
    found = np.stack([unknown_bands(each) for each in conditions])
    return torch.from_numpy(found).to(paths.primary.device) if found.any() else None


def _initial_filter(
    model: Synthesizer, ears: _Ears, method: str, clock: _Clock, weights: Tensor | None = None
) -> Tensor:
    """Taps [batch, 2048] before any update; stages that a method does not have are not timed. weights: the `shares`
    of `Synthesizer`, where the ears are one's conditions."""
    if method in STARTS or method == "wmmse":
        psd = ears.reference_psd if weights is None else ears.reference_psd[:1]
        taps = model.initial_filter(ears.paths, method, ears.max_gain_db, psd, weights)
        clock.mark("generate")
        return taps
    ratio = model.path_ratio(ears.paths)
    clock.mark("path_ratio")
    correction = None
    if method == "prime":
        correction = model.generate(ratio.features)
        clock.mark("generate")
    limit = ears.max_gain_db if weights is None else ears.max_gain_db[:1]
    taps = model.reconstruct(ears.paths, ratio, correction, limit, weights)
    clock.mark("reconstruct")
    return taps


class _Ears:
    """Inputs on the model's device and in its precision, without those that no filter can be designed for.

    places: of the ears that are left, in `inputs`. coherence: [1, 16385] each, or None. max_gain_db: [batch, 1];
    reference_psd: [batch, 16385].
    """

    paths: AcousticPaths
    max_gain_db: Tensor
    reference_psd: Tensor

    def __init__(self, inputs: Sequence[Problem], synthesizer: Synthesizer) -> None:
        psd = synthesizer.reference_psd
        self.faults: dict[int, SynthesisError] = {}
        self._n_inputs = len(inputs)
        paths: dict[int, AcousticPaths] = {}
        for place, each in enumerate(inputs):
            try:
                paths[place] = AcousticPaths(
                    *(_spectrum(name, getattr(each.conditions[0], name), psd) for name in ("primary", "secondary"))
                ).validate()
            except SynthesisError as error:
                self.faults[place] = error
        self.places = list(paths)
        if not paths:
            return
        ears = [inputs[place] for place in self.places]
        self.paths = AcousticPaths.stack(list(paths.values()))
        given = [ear.conditions[0] for ear in ears]
        self.coherence = [None if each.coherence is None else _tensor(each.coherence, psd)[None] for each in given]
        self.uncertainty = [each.uncertainty for each in given]
        self.resembles = [each.resembles for each in given]
        self.max_gain_db = psd.new_tensor([[ear.max_gain_db] for ear in ears])
        self.reference_psd = torch.stack(
            [psd if ear.reference_psd is None else _tensor(ear.reference_psd, psd) for ear in ears]
        )

    def in_order(self, answers: Sequence[Answer]) -> list[Answer | SynthesisError]:
        """One answer for each input: those of `places`, and the faults of the others."""
        found: dict[int, Answer | SynthesisError] = dict(zip(self.places, answers, strict=True))
        return [(found | self.faults)[place] for place in range(self._n_inputs)]


class _Clock:
    """Milliseconds by stage, each since the stage before; waits for a GPU to finish what it was given."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.times_ms: dict[str, float] = {}
        self._last_s = self._now_s()

    def mark(self, stage: str) -> None:
        now_s = self._now_s()
        self.times_ms[stage] = 1e3 * (now_s - self._last_s)
        self._last_s = now_s

    def _now_s(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()


def _spectrum(name: str, path: Float32 | Complex64, like: Tensor) -> Tensor:
    """One path on the design grid, complex [1, 16385], in the precision and on the device of `like`."""
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
    return RefinementRecord(**refinement.verdict(item))  # type: ignore[arg-type]
