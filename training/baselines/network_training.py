"""Inputs and training loop shared by the networks beside the generator.

The loop repeats the generator's training (Section 2.3 of the paper) draw for draw: with equal seeds update i uses the
same cases, mixtures and clips, so that only the networks differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from synthesis.arrays import floored_log
from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator_config import Base
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.start.features import log_base_magnitude, path_features, regularised_ratio
from training.config import TrainingConfig
from training.objective import Objective
from training.trainer import STATE_EVERY_UPDATES, ReportUpdate, learning_rate, network_precision, save_state
from training.training_set import TrainingSet

N_STATISTICS = 6


@dataclass(frozen=True)
class PathInputs:
    """Estimated paths as inputs of a network, on its Fourier grid."""

    # Log A_base, natural, [batch, n_bins].
    log_base: Tensor
    # The twelve channels, [batch, 12, n_bins].
    features: Tensor
    # Mean and SD across frequency of log|P|, log|S| and log A_base, [batch, 6], which keep the amplitude scale.
    statistics: Tensor

    @classmethod
    def read(cls, paths: AcousticPaths, n_fft: int = DESIGN_N_FFT, base: Base = "full_band") -> PathInputs:
        """Read paths on the design grid; a coarser grid takes every n-th bin."""
        stride = DESIGN_N_FFT // n_fft
        coarse = AcousticPaths(paths.primary[..., ::stride], paths.secondary[..., ::stride])
        w_reg = regularised_ratio(coarse.primary, coarse.secondary)
        log_base = log_base_magnitude(w_reg, base)
        logs = torch.stack((floored_log(coarse.primary.abs()), floored_log(coarse.secondary.abs()), log_base), 1)
        statistics = torch.stack((logs.mean(-1), logs.std(-1, correction=0)), -1).flatten(1)
        return cls(log_base, path_features(coarse.primary, coarse.secondary, w_reg, log_base), statistics)


class NetworkOutput(NamedTuple):
    """Output of a network."""

    # [batch, 2048].
    taps: Tensor
    # Quantity in place of Delta in the objective, [batch, n]; zeros for none.
    penalised: Tensor


class FilterNetwork(nn.Module):
    """A network from estimated paths to taps."""

    def forward(self, paths: AcousticPaths) -> NetworkOutput:
        """Compute the output for paths on the design grid, on the weights' device, in float32."""
        raise NotImplementedError


def full_precision(like: Tensor) -> torch.autocast:
    """Suspend autocast, for layers that pass the amplitude scale."""
    return torch.autocast(like.device.type, enabled=False)


@dataclass(frozen=True)
class NetworkMethod:
    """A trained network as a design method."""

    network: FilterNetwork

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048] from estimated paths, on the paths' device and in their real type."""
        weight = next(self.network.parameters())
        taps = self.network(paths.to(weight.dtype, weight.device)).taps
        return ControlFilter(taps.to(paths.primary.real))

    @classmethod
    def fit(
        cls,
        name: str,
        build: Callable[[], FilterNetwork],
        training_set: TrainingSet,
        objective: Objective,
        config: TrainingConfig,
        *,
        seed: int,
        state_file: Path | None = None,
        progress: ReportUpdate | None = None,
    ) -> Self:
        """Train a network on the device that holds the training set.

        All draws of update i come from a generator seeded with (seed, i), so that weights and optimiser moments are the
        whole state: a training resumed from `state_file` (read if it exists, written every 250 updates) ends like an
        uninterrupted one, and a finished one returns at once.

        Parameters
        ----------
        name
            Of the method, for the state file.
        build
            Makes the network, under the seed.
        config
            Configuration of the PRIME model to compare with.

        Raises
        ------
        ValueError
            The state file is of another method or seed.
        FloatingPointError
            The loss is not finite.
        """
        torch.manual_seed(seed)
        network = build().to(training_set.primary_estimates.device).train()
        optimiser = torch.optim.AdamW(
            network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        owner = f"{name}, seed {seed}"
        done = 0
        if state_file is not None and state_file.exists():
            done = _load(state_file, owner, network, optimiser)
        for update in range(done, config.n_updates):
            loss = _train_step(network, optimiser, training_set, objective, config, seed, update)
            if (update + 1) % STATE_EVERY_UPDATES == 0 or update + 1 == config.n_updates:
                if state_file is not None:
                    _save(state_file, owner, network, optimiser, update + 1)
                if progress is not None:
                    progress(update + 1, config.n_updates, loss)
        return cls(network.eval())


def _train_step(
    network: FilterNetwork,
    optimiser: torch.optim.Optimizer,
    training_set: TrainingSet,
    objective: Objective,
    config: TrainingConfig,
    seed: int,
    update: int,
) -> float:
    """Make one update: estimates -> filter -> objective on the true paths -> AdamW; return the loss."""
    rng = np.random.default_rng([seed, update])
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(config, update)
    primary, secondary, true = training_set.draw(config.batch_size, config.mixture_probability, rng)
    paths = AcousticPaths.from_impulse_responses(primary, secondary)
    with network_precision(config, primary.device):
        taps, penalised = network(paths)
    loss = objective(true, taps, penalised, rng, n_fft=DESIGN_N_FFT)
    if not bool(torch.isfinite(loss)):
        raise FloatingPointError(f"update {update}: the loss is {loss.item()}, not finite")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    return loss.item()


def _save(state_file: Path, owner: str, network: nn.Module, optimiser: torch.optim.Optimizer, n_done: int) -> None:
    state = {
        "owner": owner,
        "update": n_done,
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
    }
    save_state(state_file, state)


def _load(state_file: Path, owner: str, network: nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Load network and optimiser; return the number of updates done."""
    state = torch.load(state_file, weights_only=True, map_location="cpu")
    if state["owner"] != owner:
        raise ValueError(f"state file {state_file}: found {state['owner']!r}, expected {owner!r}")
    network.load_state_dict(state["network"])
    optimiser.load_state_dict(state["optimiser"])
    n_done: int = state["update"]
    return n_done
