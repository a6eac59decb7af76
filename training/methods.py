"""The methods by name: how each is made, what it is fitted on, and which updates follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hardware.realise import Target
from synthesis.generator import Generator
from synthesis.generator_config import GeneratorConfig, Realisation
from synthesis.methods import STARTS
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, Synthesizer
from training.baselines.adaptive import FxLms, FxNlms
from training.baselines.analytic import RatioBase, Start
from training.baselines.conditioning_controls import PathIndependentCorrection, ShuffledPhase
from training.baselines.e2e_cfg import STANDARD_SIZE, E2eCfg, E2eCfgSize
from training.baselines.fomaml import Fomaml
from training.baselines.generative import GenerativeFixedFilter
from training.baselines.iterative_fir import IterativeFir
from training.baselines.output_controls import OUTPUT_CONTROLS, OutputControl
from training.baselines.realised import IndividualRealisation, SupportSharedRealisation
from training.baselines.selective import SelectiveFixedFilter
from training.baselines.wmmse import SupportSharedWmmse, Wmmse, WmmseFast, WmmsePcg
from training.config import GeneratorKind, TrainingConfig, load_config
from training.evaluation import Method, Updates
from training.measurements import Measurements
from training.objective import FrequencyDomainObjective, Objective, TimeDomainObjective
from training.trainer import ReportUpdate
from training.training_set import TrainingSet


@dataclass(frozen=True)
class GeneratorSetup:
    """A generator's training: the kind's own configuration but for what is named here."""

    kind: GeneratorKind
    interpolation: bool | None = None
    realisation: Realisation = "fir_wiener"

    def layout(self, n_fft: int) -> GeneratorConfig:
        """On a data set's Fourier grid (`prime`), or on the design grid (`prime-log`)."""
        if self.kind == "prime":
            return GeneratorConfig.prime(n_fft)
        return GeneratorConfig.prime_log(realisation=self.realisation)

    def configuration(self, **changes: object) -> TrainingConfig:
        """The kind's configuration with the command line's `changes`, those that are not None."""
        return load_config(self.kind, **{"interpolation": self.interpolation, **changes})


GENERATORS: Mapping[str, GeneratorSetup] = {
    "prime": GeneratorSetup("prime"),
    "prime_no_interpolation": GeneratorSetup("prime", interpolation=False),
    "prime-log": GeneratorSetup("prime-log"),
    "prime-log_no_interpolation": GeneratorSetup("prime-log", interpolation=False),
    "prime-log_minimum_phase": GeneratorSetup("prime-log", realisation="minimum_phase"),
}
"""Trained, scored and published by name."""

PCG_BUDGETS = (32, 64, 128, 256, 512, 1024, 2048)

BOTH_PROFILES = (Updates("paper", (1, 2, 3)), Updates("fast", (1, 2, 3)))
FOUR_UPDATES = (Updates("paper", (1, 2, 3, 4)), Updates("fast", (1, 2, 3, 4)))
NO_UPDATES: tuple[Updates, ...] = ()


@dataclass(frozen=True)
class GeneratorDesign:
    """A generator as a method: what the service designs at k = 0."""

    name: str
    synthesizer: Synthesizer

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048]; the ceiling is a part of `prime-log` and the paper's generator has none."""
        max_gain_db = None if self.synthesizer.generator.config.kind == "prime" else DEFAULT_MAX_GAIN_DB
        return ControlFilter(self.synthesizer.initial_filter(paths, "prime", max_gain_db))


@dataclass(frozen=True)
class Fitting:
    """What a method may be fitted with: the support of one split, never a query.

    query: the held-out listeners, of whom only the shuffled-phase control reads anything, other queries' phases.
    generator: the standard PRIME of the same split and seed, for the controls that are made of it.
    """

    measurements: Measurements
    support: tuple[str, ...]
    query: tuple[str, ...]
    split: int
    seed: int
    config: TrainingConfig
    device: torch.device
    state_file: Path
    progress: ReportUpdate
    generator: Generator | None = None

    @property
    def psd(self) -> Tensor:
        """The reference power spectrum, [16385], on the device."""
        return self.measurements.reference_psd.float().to(self.device)

    def training_set(self) -> TrainingSet:
        """The support's cases and mixtures, as `config` wants them."""
        return self.measurements.training_set(self.support, self.config, self.device, seed=self.split)

    def objective(self) -> Objective:
        """Eq. 6 in the configuration's domain."""
        return objective(self.config, self.measurements, self.device)


def objective(config: TrainingConfig, measurements: Measurements, device: torch.device) -> Objective:
    """Eq. 6 on clips or on the reference spectrum, as the configuration says."""
    if config.objective.domain == "time":
        return TimeDomainObjective(config.objective, measurements.noise, device)
    return FrequencyDomainObjective(config.objective, measurements.reference_psd.float().to(device))


@dataclass(frozen=True)
class Untrained:
    """Designs each case from its own paths: `make` takes the reference power spectrum."""

    make: Callable[[Tensor], Method]
    updates: tuple[Updates, ...] = NO_UPDATES


@dataclass(frozen=True)
class Fitted:
    """Fitted on a split's support, with a seed where chance has a part.

    It follows the training configuration of `prime`. needs_generator: it is made of a standard PRIME.
    """

    fit: Callable[[Fitting], Method]
    updates: tuple[Updates, ...] = NO_UPDATES
    rests_on: Literal["split", "seed"] = "seed"
    needs_generator: bool = False


def _ratio_base(base: Literal["full_band", "held_band"]) -> Untrained:
    return Untrained(lambda psd: RatioBase(base), FOUR_UPDATES)


def _start(name: str) -> Untrained:
    return Untrained(lambda psd: Start(name), BOTH_PROFILES)


def _pcg(budget: int) -> Untrained:
    return Untrained(lambda psd: WmmsePcg(psd, budget))


ON_HARDWARE: Mapping[str, Target] = {"fir_2048": Target(form="fir"), "sections_6": Target(n_sections=6)}
"""Designed for each ear; under the name with `_shared`, for all ears of the support together."""


def _realised(name: str) -> Untrained:
    return Untrained(lambda psd: IndividualRealisation(psd, ON_HARDWARE[name], name))


UNTRAINED: Mapping[str, Untrained] = {
    "ratio_base_full_band": _ratio_base("full_band"),
    "ratio_base_held_band": _ratio_base("held_band"),
    **{name: _start(name) for name in STARTS},
    "wmmse": Untrained(Wmmse, BOTH_PROFILES),
    "wmmse_fast": Untrained(WmmseFast),
    **{f"wmmse_pcg_{budget}": _pcg(budget) for budget in PCG_BUDGETS},
    **{name: _realised(name) for name in ON_HARDWARE},
    "iterative_fir": Untrained(IterativeFir),
    "fxlms": Untrained(lambda psd: FxLms()),
    "fxnlms": Untrained(lambda psd: FxNlms()),
    "weighted_fxlms": Untrained(lambda psd: FxLms()),  # evaluated with a filter for each noise
}


def _output_control(name: str) -> Fitted:
    def fit(f: Fitting) -> Method:
        return OutputControl.fit(
            f.training_set(),
            f.objective(),
            f.config,
            control=name,
            seed=f.seed,
            n_fft=f.measurements.dataset.n_fft,
            state_file=f.state_file,
            progress=f.progress,
        )

    return Fitted(fit)


def _realised_for_all(name: str) -> Fitted:
    return Fitted(
        lambda f: SupportSharedRealisation.fit(f.training_set(), f.psd, ON_HARDWARE[name], f"{name}_shared"),
        rests_on="split",
    )


def fit_e2e_cfg(f: Fitting, size: E2eCfgSize = STANDARD_SIZE) -> Method:
    """E2E-CFG, in the experiment's size or another."""
    return E2eCfg.fit(
        f.training_set(),
        f.objective(),
        f.config,
        seed=f.seed,
        n_fft=f.measurements.dataset.n_fft,
        size=size,
        state_file=f.state_file,
        progress=f.progress,
    )


def _shuffled_phase(f: Fitting) -> Method:
    assert f.generator is not None
    return ShuffledPhase(f.generator, f.measurements.paths(f.measurements.indices(f.query)), seed=f.seed)


def _path_independent(f: Fitting) -> Method:
    assert f.generator is not None
    return PathIndependentCorrection.fit(f.training_set(), f.generator)


FITTED: Mapping[str, Fitted] = {
    "wmmse_shared": Fitted(lambda f: SupportSharedWmmse.fit(f.training_set(), f.psd), rests_on="split"),
    **{f"{name}_shared": _realised_for_all(name) for name in ON_HARDWARE},
    "selective": Fitted(lambda f: SelectiveFixedFilter.fit(f.training_set(), f.psd), rests_on="split"),
    "fomaml": Fitted(
        lambda f: Fomaml.fit(f.training_set(), f.psd, seed=f.seed, progress=f.progress),
        BOTH_PROFILES,
        rests_on="split",
    ),
    "generative": Fitted(
        lambda f: GenerativeFixedFilter.fit(f.training_set(), f.psd, seed=f.seed, progress=f.progress)
    ),
    "e2e_cfg": Fitted(fit_e2e_cfg),
    **{name: _output_control(name) for name in OUTPUT_CONTROLS},
    "prime_shuffled_phase": Fitted(_shuffled_phase, needs_generator=True),
    "prime_path_independent": Fitted(_path_independent, needs_generator=True),
}

NAMES = (*UNTRAINED, *FITTED, *GENERATORS)

GROUPS: Mapping[str, tuple[str, ...]] = {
    "standard": ("ratio_base_full_band", "ratio_base_held_band", "fir_wiener", "projected_ratio", "wmmse"),
    "hardware": tuple(each for name in ON_HARDWARE for each in (name, f"{name}_shared")),
    "untrained": tuple(UNTRAINED),
    "fitted": tuple(FITTED),
    "generators": tuple(GENERATORS),
    "all": NAMES,
}
"""Names that stand for several."""


def chosen_methods(text: str) -> tuple[str, ...]:
    """Method names from a comma-separated list of names and groups, in the order of NAMES.

    A control that is made of a standard PRIME brings `prime` along. Raises ValueError for an unknown name.
    """
    wanted: set[str] = set()
    for word in filter(None, (each.strip() for each in text.split(","))):
        if word not in NAMES and word not in GROUPS:
            raise ValueError(f"--methods: {word!r} does not exist; use some of {', '.join((*GROUPS, *NAMES))}")
        wanted.update(GROUPS.get(word, (word,)))
    if not wanted:
        raise ValueError(f"--methods: {text!r} names none; use some of {', '.join((*GROUPS, *NAMES))}")
    if any(name in FITTED and FITTED[name].needs_generator for name in wanted):
        wanted.add("prime")
    return tuple(name for name in NAMES if name in wanted)
