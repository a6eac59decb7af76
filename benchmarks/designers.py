"""Who designs filters in the core benchmark: the service's own models, and those that they are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_toeplitz
from torch import Tensor

from benchmarks import paper_refinement
from benchmarks.ears import Ears
from benchmarks.timing import Times
from model_store.checkpoint import GoldenCase
from model_store.store import ModelStore
from service.designs import Ear, Recipe
from service.engine.resident import ResidentModel
from service.engine.stage_clock import StageClock
from service.formats import wire
from service.formats.answers import CORE_STAGES
from synthesis.conventions import N_TAPS, SAMPLE_RATE_HZ
from synthesis.cuda_graph import GraphedStage
from synthesis.errors import SynthesisError
from synthesis.generator import Generator, GeneratorConfig
from synthesis.paths import AcousticPaths
from synthesis.spectra import squared_magnitude
from synthesis.wiener import toeplitz_system, wmmse_weights

ADAFILT_N_FFT = 4096
ADAFILT_SAMPLES = 4 * SAMPLE_RATE_HZ


class Designer(Protocol):
    """Designs the ears at some places as one batch: taps [batch, n_taps], and milliseconds by stage.

    `core` is among the stages where it is not the sum of the service's core stages.
    """

    def __call__(self, places: Sequence[int]) -> tuple[Tensor, Times]:
        """Design."""
        ...


def core_ms(times: Times) -> float:
    """From resident spectra to the filter."""
    return times["core"] if "core" in times else sum(times[stage] for stage in CORE_STAGES if stage in times)


class ServiceDesigner:
    """A resident model, from the body of each request to the bytes of each answer; no socket and no queue."""

    def __init__(self, model: ResidentModel, ears: Ears, recipe: Recipe, *, net: bool = True) -> None:
        """The model may be shared with other designers of the same thread. net: as the service designs, a filter
        that is predicted to do little a second time by WMMSE; without, times and filters are the model's own."""
        self._design = model.design if net else model._designed
        self._recipe, self._bodies = recipe, ears.bodies

    def __call__(self, places: Sequence[int]) -> tuple[Tensor, Times]:
        """Raises SynthesisError for an ear that no filter can be designed for."""
        began = perf_counter()
        ears = [Ear(*wire.decode(self._bodies[place])) for place in places]
        decoded = perf_counter()
        designs = self._design(self._recipe, ears)
        designed = perf_counter()
        taps = []
        for design in designs:
            if isinstance(design, SynthesisError):
                raise design
            wire.encode_taps(design.taps)
            taps.append(design.taps)
        ended = perf_counter()
        times = dict(designs[0].times_ms)  # type: ignore[union-attr]
        times["decode"] += 1e3 * (decoded - began)
        times["encode"] = 1e3 * (ended - designed)
        times["total"] = 1e3 * (ended - began)
        return torch.from_numpy(np.stack(taps)), times


class PaperDesigner:
    """The same generator, refined as the paper does it: 32768-point products, diagonal preconditioner."""

    def __init__(
        self,
        start: ServiceDesigner,
        ears: Ears,
        n_updates: int,
        device: torch.device,
        *,
        captured: bool,
        settings: paper_refinement.Settings = paper_refinement.PAPER,
    ) -> None:
        """start: designs without updates. captured: replay a CUDA graph of the refinement, else run it eagerly."""
        self._start, self._n_updates, self._captured, self._settings = start, n_updates, captured, settings
        self._paths = ears.estimated.to(torch.float32, device)
        self._psd = ears.reference_psd.float().to(device)
        self._clock = StageClock(device)
        self._stages: dict[int, GraphedStage] = {}

    def __call__(self, places: Sequence[int]) -> tuple[Tensor, Times]:
        """The start's times with another `refine`."""
        taps, times = self._start(places)
        chosen = list(places)
        inputs = self._paths.primary[chosen], self._paths.secondary[chosen], taps.to(self._psd.device)
        if len(chosen) not in self._stages:
            self._stages[len(chosen)] = GraphedStage(self._refine, inputs, capture=self._captured)
        stage = self._stages[len(chosen)]
        for buffer, value in zip(stage.inputs, inputs, strict=True):
            buffer.copy_(value)
        self._clock.start()
        refined, self.residuals = stage.run()
        self._clock.mark("refine")
        times |= self._clock.times_ms()
        for stage_name in ("predict", "encode", "total"):
            times.pop(stage_name, None)
        return refined.to("cpu", copy=True), times

    def _refine(self, primary: Tensor, secondary: Tensor, taps: Tensor) -> tuple[Tensor, Tensor]:
        paths = AcousticPaths(primary, secondary)
        return paper_refinement.refine(paths, taps, self._psd, self._n_updates, self._settings)


class ToeplitzSolver:
    """WMMSE by `scipy.linalg.solve_toeplitz` in float64, ear after ear: Levinson's recursion, O(n_taps^2)."""

    def __init__(self, ears: Ears) -> None:
        """Spectra and weights are resident."""
        self._paths, self._weights = ears.estimated, wmmse_weights(ears.reference_psd)

    def __call__(self, places: Sequence[int]) -> tuple[Tensor, Times]:
        """`solve` is the recursion alone, `core` its equations too."""
        chosen = list(places)
        began = perf_counter()
        paths = AcousticPaths(self._paths.primary[chosen], self._paths.secondary[chosen])
        column, rhs = (each.numpy() for each in toeplitz_system(paths, self._weights))
        set_up = perf_counter()
        taps = [solve_toeplitz(first, right) for first, right in zip(column, rhs, strict=True)]
        ended = perf_counter()
        times = {"system": 1e3 * (set_up - began), "solve": 1e3 * (ended - set_up), "core": 1e3 * (ended - began)}
        return torch.from_numpy(np.stack(taps)), times


class AdafiltDesigner:
    """`adafilt.optimal.wiener_filter`: the causal Wiener filter from recordings of reference and disturbance.

    Each ear is given four seconds of reference and what the estimated primary path makes of it, both recorded
    beforehand. The reference is noise shaped by 1 / (f |P|^2), which weighs every octave of the disturbance alike.
    On 30 measured ears this gave 10.2 dB at 4096 points and 8.8 at 8192; the reference noise itself, which weighs
    watts, gave 6 at most. Nothing in it limits the gain where the secondary path is weak. Its sign is not ours.
    """

    def __init__(self, ears: Ears) -> None:
        """Raises ImportError where the `benchmarks` extra is not installed."""
        from adafilt.optimal import wiener_filter

        self._design = wiener_filter
        self._ears, self._recordings = ears, {}  # type: tuple[Ears, dict[int, tuple[NDArray[Any], NDArray[Any]]]]

    def __call__(self, places: Sequence[int]) -> tuple[Tensor, Times]:
        """Only the design is timed."""
        taps, spent = [], 0.0
        for place in places:
            reference, disturbance = self._recorded(place)
            secondary = self._ears.secondary[place].astype(np.float64)
            began = perf_counter()
            response = self._design(reference, disturbance, ADAFILT_N_FFT, g=secondary, constrained=True)
            taps.append(-np.fft.ifft(response).real[:N_TAPS])
            spent += 1e3 * (perf_counter() - began)
        return torch.from_numpy(np.stack(taps)), {"core": spent}

    def _recorded(self, place: int) -> tuple[NDArray[Any], NDArray[Any]]:
        if place not in self._recordings:
            primary = self._ears.estimated.primary[place : place + 1]
            grid = np.linspace(0, SAMPLE_RATE_HZ / 2, primary.shape[-1])
            power = squared_magnitude(primary)[0].numpy()
            octaves_alike = 1 / (np.maximum(grid, 20.0) * np.maximum(power, np.finfo(np.float32).tiny))
            frequency = np.linspace(0, SAMPLE_RATE_HZ / 2, ADAFILT_SAMPLES // 2 + 1)
            shape = np.sqrt(np.interp(frequency, grid, octaves_alike))
            noise = np.random.default_rng([place]).standard_normal(ADAFILT_SAMPLES)
            reference = np.fft.rfft(noise) * shape
            response = np.fft.rfft(self._ears.primary[place].astype(np.float64), ADAFILT_SAMPLES)
            self._recordings[place] = (
                np.fft.irfft(reference, ADAFILT_SAMPLES),
                np.fft.irfft(reference * response, ADAFILT_SAMPLES),
            )
        return self._recordings[place]


def resident(store: ModelStore, reference: str, device: torch.device, *, fused: bool = True) -> ResidentModel:
    """A published model, as the service would load it; not fused: on a GPU without kernels of its own."""
    return ResidentModel(store.resolve(reference), store.load(reference), device, fused=fused)


def untrained(store: ModelStore, reference: str, config: GeneratorConfig, device: torch.device) -> ResidentModel:
    """A published model with another generator at its starting weights: a layout's times, not its quality."""
    version, checkpoint = store.resolve(reference), store.load(reference)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generator = Generator(config).eval().requires_grad_(False)
    asked = checkpoint.golden
    golden = GoldenCase.make(
        generator,
        checkpoint.reference_psd,
        checkpoint.band_uncertainty,
        asked.primary,
        asked.secondary,
        asked.coherence,
    )
    named = replace(version, name=f"untrained-{config.kind}")
    return ResidentModel(named, replace(checkpoint, generator=generator, golden=golden), device)
