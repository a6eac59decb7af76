"""Train one generator: state, load, train loop, checkpoint."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator import Generator, GeneratorConfig
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, Synthesizer
from training.config import TrainingConfig
from training.objective import Objective
from training.training_set import TrainingSet

STATE_EVERY_UPDATES = 250


@dataclass(frozen=True)
class Progress:
    """Where a training stands: for a progress line."""

    update: int
    n_updates: int
    loss: float
    updates_per_s: float
    seconds_left: float


class Trainer:
    """One model's training, resumable from its state file with the result of an unbroken run.

    Every draw of update i comes from a generator seeded with (seed, i), and the learning rate is a function of
    i, so that weights and optimiser moments are all the state there is.
    """

    def __init__(
        self,
        config: TrainingConfig,
        generator_config: GeneratorConfig,
        training_set: TrainingSet,
        objective: Objective,
        *,
        seed: int,
        device: torch.device,
        state_file: Path | None = None,
    ) -> None:
        """state_file: read if it exists, written every 250 updates; None keeps no state."""
        self.config = config
        self.training_set = training_set
        self.objective = objective
        self.seed = seed
        self.state_file = state_file
        self.update = 0
        torch.manual_seed(seed)
        self.generator = Generator(generator_config).to(device)
        # The recipe's reference and uncertainty serve refinement and prediction, which training does not run.
        unused = torch.zeros(1, device=device)
        self.synthesizer = Synthesizer(self.generator, unused, unused)
        self.max_gain_db = DEFAULT_MAX_GAIN_DB if generator_config.kind == "prime-log" else None
        self.optimiser = torch.optim.AdamW(
            self.generator.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        if state_file is not None and state_file.exists():
            self._load(state_file)

    def train(self, report: Callable[[Progress], None] = lambda _: None) -> Generator:
        """Run the updates that are left and return the final generator, in evaluation mode."""
        started, first = time.monotonic(), self.update
        while self.update < self.config.n_updates:
            loss = self.train_step()
            if self.update % STATE_EVERY_UPDATES == 0 or self.update == self.config.n_updates:
                self._save()
                rate = (self.update - first) / (time.monotonic() - started)
                left = (self.config.n_updates - self.update) / rate
                report(Progress(self.update, self.config.n_updates, loss.item(), rate, left))
        return self.generator.eval()

    def train_step(self) -> torch.Tensor:
        """One update: estimates -> filter -> objective on the true paths -> AdamW. Returns the loss."""
        config = self.config
        rng = np.random.default_rng([self.seed, self.update])
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(config, self.update)
        primary, secondary, true = self.training_set.draw(config.batch_size, config.mixture_probability, rng)
        paths = AcousticPaths.from_impulse_responses(primary, secondary)
        ratio = self.synthesizer.path_ratio(paths)
        with torch.autocast(primary.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            correction = self.synthesizer.generate(ratio.features)
        taps = self.synthesizer.reconstruct(paths, ratio, correction.float(), self.max_gain_db)
        loss = self.objective(true, taps, correction.float().flatten(1), rng, n_fft=DESIGN_N_FFT)
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(f"update {self.update}: found a loss of {loss.item()}, expected a finite one")
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.update += 1
        return loss.detach()

    def _save(self) -> None:
        """Write the state beside the old one and swap, so that a kill leaves one of the two."""
        if self.state_file is None:
            return
        state: dict[str, Any] = {
            "update": self.update,
            "generator": self.generator.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }
        self.state_file.parent.mkdir(parents=True, exist_ok=True)
        beside = self.state_file.with_suffix(".partial")
        torch.save(state, beside)
        os.replace(beside, self.state_file)

    def _load(self, state_file: Path) -> None:
        state = torch.load(state_file, weights_only=True)
        self.generator.load_state_dict(state["generator"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.update = state["update"]


def learning_rate(config: TrainingConfig, update: int) -> float:
    """Of one update. `one-cycle`: linear warm-up over the first tenth, then a half cosine down to zero."""
    if config.schedule == "constant":
        return config.learning_rate
    warm_up = max(1, config.n_updates // 10)
    if update < warm_up:
        return config.learning_rate * (update + 1) / warm_up
    progress = (update - warm_up) / max(1, config.n_updates - warm_up)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
