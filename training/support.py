"""What a method may know: the support of one split, and the training of networks on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator, model_parameters
from prime_anc.method.types import ModelParameters
from training.config import Configuration, GeneratorKind, TrainingConfig
from training.data import Data
from training.measurements import Measurements
from training.objective import FrequencyDomainObjective, Objective, TimeDomainObjective
from training.rows import RunFolder
from training.trainer import GeneratorNetwork, Network, ReportUpdate, Trainer, loss_record, save_state
from training.training_set import TrainingSet


@dataclass(frozen=True)
class Recipe:
    """Training of a generator: the configuration of its kind with these changes."""

    kind: GeneratorKind
    interpolation: bool | None = None

    def layout(self, n_fft: int) -> GeneratorConfig:
        """Return the layout on a data set's Fourier grid (`prime`), or on the design grid (`prime-log`)."""
        return GeneratorConfig.prime(n_fft) if self.kind == "prime" else GeneratorConfig.prime_log()

    def training(self, configuration: Configuration) -> TrainingConfig:
        """Return the training configuration in an experiment."""
        return configuration.training(self.kind, interpolation=self.interpolation)


RECIPES = {
    "prime_no_interpolation": Recipe("prime", interpolation=False),
    "prime": Recipe("prime"),
    "prime-log_no_interpolation": Recipe("prime-log", interpolation=False),
    "prime-log": Recipe("prime-log"),
}


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
        """Return the reference power spectrum, [16385], on the run's device."""
        return self.measurements.reference_psd.float().to(self.data.device)

    @cached_property
    def config(self) -> TrainingConfig:
        """Return the training of `prime`, which fitted methods share."""
        return self.data.configuration.training("prime")

    @property
    def cases(self) -> TrainingSet:
        """Return the cases and mixtures of that training."""
        return self.training_set(self.config)

    @property
    def progress(self) -> ReportUpdate:
        """Return what records the losses of this task."""
        return loss_record(self.folder.file("losses", self.name), self.name)

    def parameters(self, generator: Generator, with_prior: bool = False) -> ModelParameters:
        """Return a generator as a model of this support."""
        uncertainty = self.measurements.support_uncertainty(self.listeners)
        prior = self.measurements.path_prior(self.listeners) if with_prior else None
        return model_parameters(generator, self.measurements.reference_psd, uncertainty, prior)

    def untrained(self, layout: GeneratorConfig | None = None) -> ModelParameters:
        """Return the parameters of a model whose generator is unused."""
        return self.parameters(Generator(layout or GeneratorConfig.prime_log()))

    def training_set(self, config: TrainingConfig) -> TrainingSet:
        """Return cases and mixtures of the support."""
        return self.data.training_set(self.measurements, self.listeners, config, self.split)

    def generator(self, method: str) -> Generator:
        """Return the trained generator of a method for this split and seed, training it if missing."""
        recipe, name = RECIPES[method], f"{method}/{self.name.partition('/')[2]}"
        layout, file = recipe.layout(self.data.dataset.n_fft), self.folder.file("models", name)
        if not file.exists():
            config = recipe.training(self.data.configuration)
            print(f"{name}: trains with {config.n_calibrations} calibrations", flush=True)
            network = self.trained(name, lambda: GeneratorNetwork(layout), self.training_set(config), config)
            save_state(file, network.generator.cpu().state_dict())
            self.folder.file("state", name).unlink(missing_ok=True)
        generator = Generator(layout)
        generator.load_state_dict(torch.load(file, weights_only=True))
        return generator.to(self.data.device).eval().requires_grad_(False)

    def trained(
        self, name: str, build: Callable[[], Network], training_set: TrainingSet, config: TrainingConfig
    ) -> Network:
        """Train a network for this split and seed, or continue its training; `name` is that of its state file."""
        loss = objective(config, self.measurements, self.data.device)
        state_file = self.folder.file("state", name)
        trainer = Trainer(name, build, training_set, loss, config, seed=self.seed, state_file=state_file)
        if trainer.update:
            print(f"{name}: continues from update {trainer.update}", flush=True)
        return trainer.train(loss_record(self.folder.file("losses", name), name))


def objective(config: TrainingConfig, measurements: Measurements, device: torch.device) -> Objective:
    """Return Eq. 6 on clips or on the reference spectrum, as configured."""
    if config.objective.domain == "time":
        return TimeDomainObjective(config.objective, measurements.noise, device)
    return FrequencyDomainObjective(config.objective, measurements.reference_psd.float().to(device))
