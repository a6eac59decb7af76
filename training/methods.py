"""The methods of the paper by name. To add one, write its class in `training/baselines/` and its line in METHODS.

A method is fitted on the support of a split (many need none) and then designs filters for single ears. Methods of the
service are designed and updated by its core (`Served`), all others by torch (`Designed`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from prime_anc.hardware.hybrid import design_for_all, design_hybrid
from prime_anc.hardware.realise import Target
from prime_anc.method.controller import Controller
from prime_anc.method.conventions import CORE_STAGES
from prime_anc.method.design import design
from prime_anc.method.methods import STARTS
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.plausibility import SupportPrior
from prime_anc.method.profiles import PAPER, PROFILES
from prime_anc.method.start.features import GeneratorConfig, Realisation
from prime_anc.method.start.generator import Generator, model_parameters
from prime_anc.method.types import Design, DesignOptions, Model, ModelParameters, Paths, Problem
from prime_anc.method.update import refine
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from training.baselines.adaptive import FxLms, FxNlms, WeightedFxLms
from training.baselines.conditioning_controls import PathIndependentCorrection, ShuffledPhase
from training.baselines.e2e_cfg import LEARNING_RATE, E2eCfgNetwork
from training.baselines.fomaml import N_POOLED_UPDATES, Fomaml
from training.baselines.generative import N_UPDATES, fit_generative
from training.baselines.iterative_fir import IterativeFir
from training.baselines.network_training import NetworkMethod
from training.baselines.output_controls import OUTPUT_CONTROLS, output_control
from training.baselines.realised import IndividualRealisation, SupportSharedRealisation
from training.baselines.selective import SelectiveFixedFilter
from training.baselines.wmmse import SupportSharedWmmse, WmmsePcg
from training.config import Configuration, GeneratorKind, TrainingConfig
from training.data import Data
from training.losses import loss_record
from training.measurements import Measurements, wearing_of
from training.objective import FrequencyDomainObjective, Objective, TimeDomainObjective
from training.rows import PER_NOISE, RunFolder
from training.scoring import START_SAMPLES
from training.trainer import FilterNetwork, GeneratorNetwork, Network, Trainer, save_state
from training.training_set import TrainingSet

# Profiles and numbers of Gauss-Newton updates that get a row beside the filter without updates.
Updates = tuple[tuple[str, int], ...]

TO_THREE: Updates = tuple((profile, k) for profile in ("paper", "fast") for k in (1, 2, 3))
TO_FOUR: Updates = tuple((profile, k) for profile in ("paper", "fast") for k in (1, 2, 3, 4))
# A subset, because every ear has two dozen calibrations.
BY_RECORDING: Updates = (("paper", 3), ("fast", 1), ("fast", 3))

# Updates of filters beside a controller, whose designs take longest.
CONTROLLED: Updates = (("fast", 3),)


@dataclass(frozen=True)
class Filter:
    """A control filter after `k` updates of a profile ("" at k = 0)."""

    # [2048], or [n_noises, 2048] with a filter per noise.
    taps: Tensor
    k: int
    profile: str
    # Time of the design with resident paths.
    core_ms: float
    # Controller beside it.
    controller: Controller | None = None


class Designer(Protocol):
    """A fitted method."""

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield the method's filter for a measured pair, then one per requested update."""
        ...


@dataclass(frozen=True)
class Served:
    """A method of the service, designed by the compiled core."""

    # Parameters of the model.
    parameters: ModelParameters
    # One of `prime_anc.method.methods.METHODS`.
    method: str
    # Ceiling without updates; updates of `fast` have the service's default, those of `paper` none.
    max_gain_db: float = np.inf
    # Controller beside all filters.
    controller: Controller | None = None

    @cached_property
    def model(self) -> Model:
        """Return the model on the core."""
        return Model.on("cpu", self.parameters)

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`."""
        paths = measured_paths(measurements, index)
        for profile, k in (("", 0), *updates):
            name = resolved_profile(profile or "fast", measurements.window)
            ceiling_db = self.max_gain_db if not k else DEFAULT_MAX_GAIN_DB if profile == "fast" else np.inf
            # The paper's J takes its estimates for exact.
            is_exact = profile == "paper"
            problem = Problem((paths,), max_gain_db=ceiling_db, controller=self.controller, exact=is_exact)
            made, controller = self._designed(problem, DesignOptions(self.method, k, name))
            core_ms = sum(made.times_ms.get(stage, 0.0) for stage in CORE_STAGES)
            yield Filter(torch.from_numpy(made.taps), k, profile, core_ms, controller)

    def _designed(self, problem: Problem, options: DesignOptions) -> tuple[Design, Controller | None]:
        return design(problem, options, self.model), self.controller


class ServedHybrid(Served):
    """A method of the service, with a controller for each ear (`POST /hybrid`)."""

    def _designed(self, problem: Problem, options: DesignOptions) -> tuple[Design, Controller]:
        made = design_hybrid(problem, options, self.model)
        return made.design, made.controller


class Baseline(Protocol):
    """A torch method from paths to filters."""

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, n_taps] from estimated paths."""
        ...


@dataclass(frozen=True)
class Designed:
    """A method that the service does not offer."""

    method: Baseline
    # Whether it adapts on the ear's true paths.
    true_paths: bool = False

    @torch.no_grad()
    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`; updates are torch's of the paper, which take estimates for exact."""
        paths = measurements.true_paths([index]) if self.true_paths else measurements.paths([index])
        began = time.perf_counter()
        taps = self.method.design(paths).taps
        spent_ms, done = 1e3 * (time.perf_counter() - began), 0
        yield Filter(taps[0], 0, "", spent_ms)
        psd = measurements.reference_psd.float()
        for k in (k for profile, k in updates if profile == PAPER.name):
            # Updates are made one at a time, because the schedule has no memory.
            began = time.perf_counter()
            taps = refine(paths, taps, psd, n_updates=k - done, profile=PAPER, max_gain_db=None).taps
            spent_ms, done = spent_ms + 1e3 * (time.perf_counter() - began), k
            yield Filter(taps[0], k, PAPER.name, spent_ms)


@dataclass(frozen=True)
class ForEachNoise:
    """Weighted FxLMS: a filter per noise, adapted before the scored part begins."""

    def filters(self, measurements: Measurements, index: int, updates: Updates) -> Iterator[Filter]:
        """Yield filters as `Designer.filters`, of original measurements only."""
        if measurements.pairs[index].condition == "original":
            adaptation_noise = measurements.noise.signals[:, :START_SAMPLES]
            taps = WeightedFxLms().design_for(measurements.true_paths([index]), adaptation_noise)
            yield Filter(taps[0], 0, "", float("nan"))


@dataclass(frozen=True)
class Recipe:
    """Training of a generator: the configuration of its kind with these changes."""

    kind: GeneratorKind
    interpolation: bool | None = None
    realisation: Realisation = "fir_wiener"

    def layout(self, n_fft: int) -> GeneratorConfig:
        """Return the layout on a data set's Fourier grid (`prime`), or on the design grid (`prime-log`)."""
        if self.kind == "prime":
            return GeneratorConfig.prime(n_fft)
        return GeneratorConfig.prime_log(realisation=self.realisation)

    def training(self, configuration: Configuration) -> TrainingConfig:
        """Return the training configuration in an experiment."""
        return configuration.training(self.kind, interpolation=self.interpolation)


@dataclass(frozen=True)
class SupportSet:
    """Data for fitting a method: the support of one split, never a query."""

    data: Data
    # Measurements, of which only `listeners` are read.
    measurements: Measurements
    listeners: tuple[str, ...]
    # Held-out listeners; only the shuffled-phase control reads other queries' phases.
    query: tuple[str, ...]
    split: int
    seed: int
    # METHOD/TASK, for the training's files and messages.
    name: str

    @property
    def folder(self) -> RunFolder:
        """Return the folder of the run."""
        return RunFolder(self.data.configuration.out)

    @property
    def psd(self) -> Tensor:
        """Return the reference power spectrum, [16385], on the training device."""
        return self.measurements.reference_psd.float().to(self.data.device)

    def parameters(self, generator: Generator, with_prior: bool = False) -> ModelParameters:
        """Return a generator as a model of this support."""
        uncertainty = self.measurements.support_uncertainty(self.listeners)
        prior = self.measurements.path_prior(self.listeners) if with_prior else None
        return model_parameters(generator, self.measurements.reference_psd, uncertainty, prior)

    def untrained(self, layout: GeneratorConfig | None = None) -> ModelParameters:
        """Return the parameters of a model whose generator is unused."""
        return self.parameters(Generator(layout or GeneratorConfig.prime_log()))

    def worn(self) -> ModelParameters:
        """Return the same with the support's changes by wearing, which plants of a controller need."""
        support = SupportPrior(self.measurements.support_statistics(self.listeners))
        wearing = wearing_of(self.data.configuration.data, self.data.dataset, self.listeners)
        return replace(self.untrained(), support=support, wearing=wearing)

    def training_set(self, config: TrainingConfig) -> TrainingSet:
        """Return cases and mixtures of the support."""
        return self.data.training_set(self.measurements, self.listeners, config, self.split)

    def standard(self) -> tuple[TrainingSet, TrainingConfig]:
        """Return training set and configuration of `prime`, which fitted methods share."""
        config = self.data.configuration.training("prime")
        return self.training_set(config), config

    def generator(self, method: str) -> Generator:
        """Return the trained generator of a method for this split and seed, training it if missing."""
        recipe = METHODS[method].recipe
        assert recipe is not None
        name = f"{method}/{self.name.partition('/')[2]}"
        layout, file = recipe.layout(self.data.dataset.n_fft), self.folder.model_file(name)
        if not file.exists():
            config, state_file = recipe.training(self.data.configuration), self.folder.state_file(name)
            print(f"{name}: trains with {config.n_calibrations} calibrations", flush=True)
            made = self.trained(name, lambda: GeneratorNetwork(layout), self.training_set(config), config)
            save_state(file, made.generator.cpu().state_dict())
            state_file.unlink(missing_ok=True)
        generator = Generator(layout)
        generator.load_state_dict(torch.load(file, weights_only=True))
        return generator.eval().requires_grad_(False)

    def trained(
        self, name: str, build: Callable[[], Network], training_set: TrainingSet, config: TrainingConfig
    ) -> Network:
        """Train a network for this split and seed, or continue its training; `name` is that of its state file."""
        trainer = Trainer(
            name,
            build,
            training_set,
            objective(config, self.measurements, self.data.device),
            config,
            seed=self.seed,
            state_file=self.folder.state_file(name),
        )
        if trainer.update:
            print(f"{name}: continues from update {trainer.update}", flush=True)
        return trainer.train(loss_record(self.folder, name))


def objective(config: TrainingConfig, measurements: Measurements, device: torch.device) -> Objective:
    """Return Eq. 6 on clips or on the reference spectrum, as configured."""
    if config.objective.domain == "time":
        return TimeDomainObjective(config.objective, measurements.noise, device)
    return FrequencyDomainObjective(config.objective, measurements.reference_psd.float().to(device))


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


def _served(name: str) -> Method:
    return Method(lambda s: Served(s.untrained(), name), TO_THREE)


def _ratio_base(base: Literal["full_band", "held_band"]) -> Method:
    layout = replace(GeneratorConfig.prime(), base=base)
    return Method(lambda s: Served(s.untrained(layout), "ratio_base"), TO_FOUR)


def _generator(name: str, recipe: Recipe) -> Method:
    ceiling_db = np.inf if recipe.kind == "prime" else DEFAULT_MAX_GAIN_DB
    return Method(
        lambda s: Served(s.parameters(s.generator(name)), "prime", ceiling_db), TO_THREE, "seed", recipe=recipe
    )


def _adaptive(method: Baseline) -> Method:
    return Method(lambda s: Designed(method, true_paths=True), true_paths=True)


def _network(build: Callable[[int], FilterNetwork], **changes: Any) -> Method:
    def fitted(s: SupportSet) -> Designer:
        training_set, config = s.standard()
        n_fft, config = s.data.dataset.n_fft, config.model_copy(update=changes)
        return Designed(NetworkMethod(s.trained(s.name, lambda: build(n_fft), training_set, config)))

    return Method(fitted, rests_on="seed")


def _fixed(fit: Callable[[TrainingSet, Tensor], Baseline]) -> Method:
    return Method(lambda s: Designed(fit(s.standard()[0], s.psd)), rests_on="split")


def _pcg(n_iterations: int) -> Method:
    return Method(lambda s: Designed(WmmsePcg(s.psd.cpu(), n_iterations)))


def _fomaml(s: SupportSet) -> Designer:
    n_updates = s.data.configuration.updates or N_POOLED_UPDATES
    return Designed(
        Fomaml.fit(
            s.standard()[0],
            s.psd,
            seed=s.seed,
            n_pooled_updates=n_updates,
            n_meta_updates=n_updates // 2,
            progress=loss_record(s.folder, s.name),
        )
    )


def _generative(s: SupportSet) -> Designer:
    n_updates = s.data.configuration.updates or N_UPDATES
    progress = loss_record(s.folder, s.name)
    return Designed(fit_generative(s.standard()[0], s.psd, seed=s.seed, n_updates=n_updates, progress=progress))


def _shuffled_phase(s: SupportSet) -> Designer:
    pool = s.measurements.paths(s.measurements.indices(s.query))
    return Designed(ShuffledPhase(s.generator("prime"), pool, seed=s.seed))


def _path_independent(s: SupportSet) -> Designer:
    return Designed(PathIndependentCorrection.fit(s.standard()[0], s.generator("prime")))


def _hybrid_shared(s: SupportSet) -> Designer:
    parameters, measured = s.worn(), s.measurements
    indices = [n for n in measured.indices(s.listeners) if measured.pairs[n].condition == "original"]
    ears = [Problem((measured_paths(measured, index),)) for index in indices]
    options = DesignOptions("wmmse", 3, resolved_profile("fast", measured.window))
    controller, _ = design_for_all(ears, options, Model.on("cpu", parameters))
    return Served(parameters, "wmmse", DEFAULT_MAX_GAIN_DB, controller)


def _realised(target: Target, name: str) -> dict[str, Method]:
    return {
        name: Method(lambda s: Designed(IndividualRealisation(s.psd, target))),
        f"{name}_shared": _fixed(lambda cases, psd: SupportSharedRealisation.fit(cases, psd, target)),
    }


RECIPES: Mapping[str, Recipe] = {
    "prime_no_interpolation": Recipe("prime", interpolation=False),
    "prime": Recipe("prime"),
    "prime-log_no_interpolation": Recipe("prime-log", interpolation=False),
    "prime-log_minimum_phase": Recipe("prime-log", realisation="minimum_phase"),
    "prime-log": Recipe("prime-log"),
}

ON_HARDWARE = _realised(Target(form="fir"), "fir_2048") | _realised(Target(n_sections=6), "sections_6")

# In the order of tables and legends.
METHODS: Mapping[str, Method] = {
    "ratio_base_full_band": _ratio_base("full_band"),
    "ratio_base_held_band": _ratio_base("held_band"),
    **{name: _served(name) for name in STARTS},
    "wmmse_shared": _fixed(SupportSharedWmmse.fit),
    **{name: method for name, method in ON_HARDWARE.items() if name.endswith("_shared")},
    "hybrid_shared": Method(_hybrid_shared, CONTROLLED, "split"),
    "fomaml": Method(_fomaml, TO_THREE, "split"),
    "selective": _fixed(SelectiveFixedFilter.fit),
    "generative": Method(_generative, rests_on="seed"),
    "e2e_cfg": _network(E2eCfgNetwork, learning_rate=LEARNING_RATE),
    **{name: _generator(name, recipe) for name, recipe in RECIPES.items()},
    **{name: _network(partial(output_control, name)) for name in OUTPUT_CONTROLS},
    "prime_shuffled_phase": Method(_shuffled_phase, rests_on="seed", needs_generator=True),
    "prime_path_independent": Method(_path_independent, rests_on="seed", needs_generator=True),
    "wmmse": _served("wmmse"),
    "hybrid": Method(lambda s: ServedHybrid(s.worn(), "wmmse", DEFAULT_MAX_GAIN_DB), CONTROLLED, "split"),
    **{f"wmmse_pcg_{n_iterations}": _pcg(n_iterations) for n_iterations in (32, 64, 128, 256, 512, 1024, 2048)},
    **{name: method for name, method in ON_HARDWARE.items() if not name.endswith("_shared")},
    "iterative_fir": Method(lambda s: Designed(IterativeFir(s.psd.cpu()))),
    "fxlms": _adaptive(FxLms()),
    "fxnlms": _adaptive(FxNlms()),
    PER_NOISE: Method(lambda s: ForEachNoise(), true_paths=True),
}

# Names of groups.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "standard": ("ratio_base_full_band", "ratio_base_held_band", "fir_wiener", "projected_ratio", "wmmse"),
    "hardware": tuple(ON_HARDWARE),
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
