"""The methods of the paper by name. To add one, write its class in `training/baselines/` and its line in METHODS.

A method is fitted on the support of a split (many need none) and then designs filters for single ears. Methods of the
service are designed and updated by its backend of the run's device (`Served`), all others by torch (`Designed`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.conventions import CORE_STAGES
from prime_anc.method.design import design
from prime_anc.method.methods import STARTS
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.profiles import PAPER, PROFILES
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.types import DesignOptions, Model, ModelParameters, Paths, Problem
from prime_anc.method.updates.update import refine
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from training.baselines.adaptive import FxLms, WeightedFxLms
from training.baselines.conditioning_controls import PathIndependentCorrection, ShuffledPhase
from training.baselines.e2e_cfg import LEARNING_RATE, E2eCfgNetwork
from training.baselines.fomaml import N_POOLED_UPDATES, Fomaml
from training.baselines.iterative_fir import IterativeFir
from training.baselines.network_training import NetworkMethod
from training.baselines.output_controls import OUTPUT_CONTROLS, output_control
from training.baselines.wmmse import SupportSharedWmmse, WmmsePcg
from training.measurements import Measurements
from training.scoring import START_SAMPLES
from training.support import RECIPES, Recipe, SupportSet
from training.trainer import FilterNetwork

# Profiles and numbers of Gauss-Newton updates that get a row beside the filter without updates.
Updates = tuple[tuple[str, int], ...]

TO_THREE: Updates = tuple((profile, k) for profile in ("paper", "fast") for k in (1, 2, 3))
TO_FOUR: Updates = tuple((profile, k) for profile in ("paper", "fast") for k in (1, 2, 3, 4))
# A subset, because every ear has two dozen calibrations.
BY_RECORDING: Updates = (("paper", 3), ("fast", 1), ("fast", 3))

# Calls whose median is a time; a call that takes longer than the limit is made once.
N_CALLS, LONG_MS = 3, 1000.0


@dataclass(frozen=True)
class Filter:
    """A control filter after `k` updates of a profile ("" at k = 0)."""

    # [2048], or [n_noises, 2048] with a filter per noise.
    taps: Tensor
    k: int
    profile: str
    # Time of the design with resident paths, median of three calls; NaN for what is adapted.
    core_ms: float


class Designer(Protocol):
    """A fitted method."""

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield the method's filter for a measured pair, then one per requested update."""


def timed(call: Callable[[], tuple[Tensor, float]]) -> tuple[Tensor, float]:
    """Return the taps that a call designs, and the median of its times in ms."""
    taps, first_ms = call()
    others = (call()[1] for _ in range(N_CALLS - 1 if first_ms < LONG_MS else 0))
    return taps, median([first_ms, *others])


@dataclass(frozen=True)
class Served:
    """A method of the service, designed by its backend."""

    # Parameters of the model.
    parameters: ModelParameters
    # One of `prime_anc.method.methods.METHODS`.
    method: str
    # Ceiling without updates; updates of `fast` have the service's default, those of `paper` none.
    max_gain_db: float = np.inf
    # `cpu` or `cuda`.
    device: str = "cpu"

    @cached_property
    def model(self) -> Model:
        """Return the model on the device."""
        return Model.on(self.device, self.parameters)

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`."""
        paths = measured_paths(measurements, index)
        for profile, k in (("", 0), *updates):
            ceiling_db = self.max_gain_db if not k else DEFAULT_MAX_GAIN_DB if profile == "fast" else np.inf
            # The paper's J takes its estimates for exact.
            problem = Problem((paths,), max_gain_db=ceiling_db, exact=profile == "paper")
            name = resolved_profile(profile or "fast", measurements.window)
            options = DesignOptions(self.method, k, name)
            taps, core_ms = timed(partial(self._call, problem, options))
            yield Filter(taps, k, profile, core_ms)

    def _call(self, problem: Problem, options: DesignOptions) -> tuple[Tensor, float]:
        designed = design(problem, options, self.model)
        return torch.from_numpy(designed.taps), sum(designed.times_ms.get(stage, 0.0) for stage in CORE_STAGES)


class Baseline(Protocol):
    """A torch method from paths to filters."""

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, n_taps] from estimated paths."""


@dataclass(frozen=True)
class Designed:
    """A method that the service does not offer."""

    method: Baseline
    device: torch.device

    @torch.no_grad()
    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`; updates are torch's of the paper, which take estimates for exact."""
        paths = measurements.paths([index]).to(torch.float32, self.device)
        taps, spent_ms = timed(lambda: self._timed(lambda: self.method.design(paths).taps))
        yield Filter(taps[0].cpu(), 0, "", spent_ms)
        psd, done = measurements.reference_psd.float().to(self.device), 0
        for k in (k for profile, k in updates if profile == PAPER.name):
            # Updates are made one at a time, because the schedule has no memory.
            more = partial(refine, paths, taps, psd, n_updates=k - done, profile=PAPER, max_gain_db=None)
            taps, more_ms = timed(lambda more=more: self._timed(lambda: more().taps))  # type: ignore[misc]
            spent_ms, done = spent_ms + more_ms, k
            yield Filter(taps[0].cpu(), k, PAPER.name, spent_ms)

    def _timed(self, call: Callable[[], Tensor]) -> tuple[Tensor, float]:
        began = time.perf_counter()
        taps = call()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return taps, 1e3 * (time.perf_counter() - began)


@dataclass(frozen=True)
class Adapted:
    """FxLMS and FxNLMS, which adapt on the ear's true paths."""

    method: FxLms

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`."""
        yield Filter(self.method.design(measurements.true_paths([index])).taps[0], 0, "", float("nan"))


@dataclass(frozen=True)
class AdaptedForEachNoise:
    """Weighted FxLMS: a filter per noise, adapted before the scored part begins."""

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`, of original measurements only."""
        if measurements.pairs[index].condition == "original":
            adaptation_noise = measurements.noise.signals[:, :START_SAMPLES]
            taps = WeightedFxLms().design_for(measurements.true_paths([index]), adaptation_noise)
            yield Filter(taps[0], 0, "", float("nan"))


def resolved_profile(name: str, window: int) -> str:
    """Choose `fine` instead of `fast` for paths from windows that the grid of `fast` does not resolve."""
    profile = PROFILES[name]
    return profile.finer if profile.finer and window > profile.n_fft else name


def measured_paths(measurements: Measurements, index: int) -> Paths:
    """Return a measured pair as a client would send it."""
    estimates = measurements.estimates
    values = (estimates.primary[index], estimates.secondary[index], estimates.coherence[index])
    return Paths(*(value.numpy().astype(np.float32) for value in values))


@dataclass(frozen=True)
class Method:
    """An entry of METHODS."""

    # Fits a designer on a support.
    fit: Callable[[SupportSet], Designer]
    # Rows beside the filter without updates.
    updates: Updates = ()
    # Unit of a fit; `ear` for methods without one.
    rests_on: Literal["ear", "split", "seed"] = "ear"
    # Whether it uses the standard `prime`.
    needs_generator: bool = False
    # Training of a generator.
    recipe: Recipe | None = None
    true_paths: bool = False


def _served(name: str, updates: Updates = TO_THREE, layout: GeneratorConfig | None = None) -> Method:
    return Method(lambda s: Served(s.untrained(layout), name, device=s.data.device.type), updates)


def _ratio_base(base: Literal["full_band", "held_band"]) -> Method:
    return _served("ratio_base", TO_FOUR, replace(GeneratorConfig.prime(), base=base))


def _generator(name: str, recipe: Recipe) -> Method:
    ceiling_db = np.inf if recipe.kind == "prime" else DEFAULT_MAX_GAIN_DB

    def fitted(s: SupportSet) -> Designer:
        return Served(s.parameters(s.generator(name).cpu()), "prime", ceiling_db, s.data.device.type)

    return Method(fitted, TO_THREE, "seed", recipe=recipe)


def _designed(fit: Callable[[SupportSet], Baseline], *options: Any, **more: Any) -> Method:
    return Method(lambda s: Designed(fit(s), s.data.device), *options, **more)


def _network(build: Callable[[int], FilterNetwork], **changes: Any) -> Method:
    def fitted(s: SupportSet) -> Baseline:
        config, n_fft = s.config.model_copy(update=changes), s.data.dataset.n_fft
        return NetworkMethod(s.trained(s.name, lambda: build(n_fft), s.cases, config))

    return _designed(fitted, rests_on="seed")


def _fomaml(s: SupportSet) -> Baseline:
    n_updates = s.data.configuration.updates or N_POOLED_UPDATES
    counts = {"n_pooled_updates": n_updates, "n_meta_updates": n_updates // 2}
    return Fomaml.fit(s.cases, s.psd, progress=s.progress, **counts)


def _shuffled_phase(s: SupportSet) -> Baseline:
    pool = s.measurements.paths(s.measurements.indices(s.query)).to(torch.float32, s.data.device)
    return ShuffledPhase(s.generator("prime"), pool, seed=s.seed)


def _path_independent(s: SupportSet) -> Baseline:
    return PathIndependentCorrection.fit(s.cases, s.generator("prime"))


# In the order of tables and legends.
METHODS: Mapping[str, Method] = {
    "ratio_base_full_band": _ratio_base("full_band"),
    "ratio_base_held_band": _ratio_base("held_band"),
    **{name: _served(name) for name in STARTS},
    "wmmse_shared": _designed(lambda s: SupportSharedWmmse.fit(s.cases, s.psd), rests_on="split"),
    "fomaml": _designed(_fomaml, TO_THREE, "split"),
    "e2e_cfg": _network(E2eCfgNetwork, learning_rate=LEARNING_RATE),
    **{name: _generator(name, recipe) for name, recipe in RECIPES.items()},
    **{name: _network(partial(output_control, name)) for name in OUTPUT_CONTROLS},
    "prime_shuffled_phase": _designed(_shuffled_phase, rests_on="seed", needs_generator=True),
    "prime_path_independent": _designed(_path_independent, rests_on="seed", needs_generator=True),
    "wmmse": _served("wmmse"),
    **{f"wmmse_pcg_{2**n}": _designed(lambda s, n=n: WmmsePcg(s.psd, 2**n)) for n in range(5, 12)},  # type: ignore[misc]
    "iterative_fir": _designed(lambda s: IterativeFir(s.psd)),
    "fxlms": Method(lambda s: Adapted(FxLms()), true_paths=True),
    "fxnlms": Method(lambda s: Adapted(FxLms(normalised=True)), true_paths=True),
    "weighted_fxlms": Method(lambda s: AdaptedForEachNoise(), true_paths=True),
}

# Names of groups.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "standard": ("ratio_base_full_band", "ratio_base_held_band", "fir_wiener", "projected_ratio", "wmmse"),
    "untrained": tuple(name for name, method in METHODS.items() if method.rests_on == "ear"),
    "fitted": tuple(name for name, item in METHODS.items() if item.rests_on != "ear" and item.recipe is None),
    "generators": tuple(RECIPES),
    "all": tuple(METHODS),
}


def chosen_methods(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of method and group names, in the order of METHODS.

    Raises
    ------
    ValueError
        A name is unknown, or there is none.
    """
    wanted: set[str] = set()
    known = ", ".join((*GROUPS, *METHODS))
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word not in METHODS and word not in GROUPS:
            raise ValueError(f"--methods: {word!r} does not exist; use some of {known}")
        wanted.update(GROUPS.get(word, (word,)))
    if not wanted:
        raise ValueError(f"--methods: {text!r} names none; use some of {known}")
    if any(METHODS[name].needs_generator for name in wanted):
        wanted.add("prime")
    return tuple(name for name in METHODS if name in wanted)
