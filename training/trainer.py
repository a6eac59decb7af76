"""Train a network from estimated paths to taps: the generator, or one that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from training.config import TrainingConfig
from training.objective import Objective
from training.rows import replacing
from training.training_set import TrainingSet

STATE_EVERY_UPDATES = 250

# Called with the updates done, their total, and the last loss.
ReportUpdate = Callable[[int, int, float], None]


class NetworkOutput(NamedTuple):
    """Output of a network."""

    # [batch, 2048].
    taps: Tensor
    # Delta of the objective, or what stands in its place, [batch, n]; zeros for none.
    penalised: Tensor


class FilterNetwork(nn.Module):
    """A network from estimated paths to taps."""

    def forward(self, paths: AcousticPaths) -> NetworkOutput:
        """Compute the output for paths on the design grid, on the weights' device, in float32."""
        raise NotImplementedError


Network = TypeVar("Network", bound=FilterNetwork)


class GeneratorNetwork(FilterNetwork):
    """The generator between path ratio and reconstruction, which autocast leaves in full precision."""

    def __init__(self, config: GeneratorConfig) -> None:
        """Build a generator with initial weights."""
        super().__init__()
        self.generator = Generator(config)
        self.max_gain_db = DEFAULT_MAX_GAIN_DB if config.kind == "prime-log" else None

    def forward(self, paths: AcousticPaths) -> NetworkOutput:
        """Compute taps [batch, 2048] and the corrections, [batch, n_outputs n_points]."""
        with full_precision(paths.primary):
            ratio = self.generator.path_ratio(paths)
        correction = self.generator(ratio.features).float()
        with full_precision(paths.primary):
            taps = self.generator.reconstruct(paths, ratio, correction, self.max_gain_db)
        return NetworkOutput(taps, correction.flatten(1))


class Trainer(Generic[Network]):
    """Training of one network (Section 2.3 of the paper).

    Draws of update i come from a generator seeded with (seed, i), and the learning rate is a function of i: networks
    of one seed see the same cases, mixtures and clips, and weights and optimiser moments are the whole state, so that
    a resumed training ends exactly like an uninterrupted one.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Network],
        training_set: TrainingSet,
        objective: Objective,
        config: TrainingConfig,
        *,
        seed: int,
        state_file: Path | None = None,
    ) -> None:
        """Prepare or resume a training on the device that holds the training set.

        Parameters
        ----------
        name
            Of the method, for the state file.
        build
            Makes the network, under the seed.
        config
            For all but the network.
        state_file
            Read if it exists, written every 250 updates; None keeps no state.

        Raises
        ------
        ValueError
            The state file is of another method or seed.
        """
        torch.manual_seed(seed)
        self.device = training_set.primary_estimates.device
        self.network = build().to(self.device).train()
        self.config, self.seed, self.state_file = config, seed, state_file
        # Number of updates done.
        self.update = 0
        self._training_set, self._objective = training_set, objective
        self._optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self._owner = f"{name}, seed {seed}"
        if state_file is not None and state_file.exists():
            self._load(state_file)

    def train(self, report: ReportUpdate = lambda *_: None) -> Network:
        """Make the remaining updates, reporting each, and return the network, in evaluation mode."""
        while self.update < self.config.n_updates:
            loss = self.train_step()
            if self.update % STATE_EVERY_UPDATES == 0 or self.update == self.config.n_updates:
                self._save()
            report(self.update, self.config.n_updates, loss)
        return self.network.eval()

    def train_step(self) -> float:
        """Make one update, estimates -> filter -> objective on the true paths -> AdamW; return the loss.

        Raises
        ------
        FloatingPointError
            The loss is not finite.
        """
        config, rng = self.config, np.random.default_rng([self.seed, self.update])
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate(config, self.update)
        primary, secondary, true = self._training_set.draw(config.batch_size, config.mixture_probability, rng)
        with network_precision(config, self.device):
            taps, penalised = self.network(AcousticPaths.from_impulse_responses(primary, secondary))
        loss = self._objective(true, taps, penalised, rng)
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(f"update {self.update}: the loss is {loss.item()}, not finite")
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._optimiser.step()
        self.update += 1
        return loss.item()

    def _save(self) -> None:
        if self.state_file is not None:
            parts = {"network": self.network.state_dict(), "optimiser": self._optimiser.state_dict()}
            save_state(self.state_file, {"owner": self._owner, "update": self.update, **parts})

    def _load(self, state_file: Path) -> None:
        state = torch.load(state_file, weights_only=True, map_location="cpu")
        if state.get("owner") != self._owner:
            raise ValueError(
                f"{state_file}: found the state of {state.get('owner')}, expected {self._owner}; delete it"
            )
        self.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.update = state["update"]


def loss_record(file: Path, task: str) -> ReportUpdate:
    """Return what records the losses of a task's training: on the screen, in a CSV file and, where it is installed, for
    TensorBoard.

    Losses of all updates are written every 250 updates, as the training's state is, and after the last: files of a
    resumed training are those of an unbroken one.
    """
    losses: list[tuple[int, float]] = []
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        writer, missing = None, "; for TensorBoard as well, pip install tensorboard"
    else:
        writer, missing = SummaryWriter(str(file.with_suffix(""))), ""
    print(f"{task}: losses in {file}{missing}", flush=True)

    def record(update: int, n_updates: int, loss: float) -> None:
        losses.append((update, loss))
        if update % STATE_EVERY_UPDATES and update != n_updates:
            return
        print(f"{task}: {update}/{n_updates} updates, loss {loss:.2f}", flush=True)
        is_first = losses[0][0] == 1
        file.parent.mkdir(parents=True, exist_ok=True)
        table = pd.DataFrame(losses, columns=["update", "loss"])
        table.to_csv(file, mode="w" if is_first else "a", header=is_first, index=False)
        if writer is not None:
            for done, value in losses:
                writer.add_scalar("loss", value, done)
        losses.clear()

    return record


def save_state(file: Path, state: dict[str, object]) -> None:
    """Write a training's state so that a kill leaves the old or the new one."""
    with replacing(file) as beside:
        torch.save(state, beside)


def learning_rate(config: TrainingConfig, update: int) -> float:
    """Compute the learning rate of an update; `one-cycle`: linear warm-up over the first tenth, then a half cosine to
    zero.
    """
    if config.schedule == "constant":
        return config.learning_rate
    warm_up = max(1, config.n_updates // 10)
    if update < warm_up:
        return config.learning_rate * (update + 1) / warm_up
    progress = (update - warm_up) / max(1, config.n_updates - warm_up)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


# Processors on which PyTorch emulates bfloat16: a layer of `prime` takes 36 times as long as in float32 (AVX2).
_WITHOUT_BFLOAT16 = ("DEFAULT", "NO AVX", "AVX2")


def network_precision(config: TrainingConfig, device: torch.device) -> torch.autocast:
    """Return the context of a network's precision: bfloat16 if configured and supported, else float32."""
    is_fast = device.type != "cpu" or torch.backends.cpu.get_cpu_capability() not in _WITHOUT_BFLOAT16
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16" and is_fast)


def full_precision(like: Tensor) -> torch.autocast:
    """Suspend autocast, for layers that pass the amplitude scale."""
    return torch.autocast(like.device.type, enabled=False)
