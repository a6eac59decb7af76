"""Train generators, one or several at once: state, load, train loop.

`GeneratorGroup` stacks the weights of several generators: `torch.func.vmap` turns the one generator's operations
into batched ones. A convolution would become a grouped one, for which fast kernels exist only in some shapes; here
it becomes a batched matrix product of unfolded rows, with channels last, so that rows stay aligned whatever the
number of bins.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import pad

from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator_config import GeneratorConfig
from synthesis.options import DEFAULT_MAX_GAIN_DB
from synthesis.paths import AcousticPaths
from synthesis.start.generator import Generator
from synthesis.synthesizer import Synthesizer
from training.config import TrainingConfig
from training.objective import Objective
from training.rows import replacing
from training.training_set import TrainingSet

STATE_EVERY_UPDATES = 250
DRAWN_AHEAD_UPDATES = 50

# Called with the updates done, their total, and the last loss.
ReportUpdate = Callable[[int, int, float], None]


class GroupTrainer:
    """Training of one or several models of one configuration, each as if it were alone.

    Draws of a model's update i come from a generator seeded with (its seed, i), the learning rate is a function of i,
    losses are added and AdamW treats weights separately: the models are independent, and weights and optimiser moments
    are the whole state. Results equal those of separate trainings up to rounding, since a batched product sums in
    another order; a resumed group ends exactly like an uninterrupted one.

    Memory bounds a group. A `prime` model of 16385 bins keeps 0.25 GB on a GPU from its forward to its backward pass
    (batch 2, bfloat16; norms and activations stay in float32 there), so that 30 models need about 10 GB; a `prime-log`
    model keeps 0.02 GB. Take as many models as fit. On a CPU a group has no advantage.
    """

    def __init__(
        self,
        config: TrainingConfig,
        generator_config: GeneratorConfig,
        training_sets: Sequence[TrainingSet],
        objective: Objective,
        *,
        seeds: Sequence[int],
        device: torch.device,
        state_file: Path | None = None,
    ) -> None:
        """Prepare or resume a training.

        Parameters
        ----------
        training_sets, seeds
            One per model; sets may differ in their cases and may be shared.
        state_file
            Read if it exists, written every 250 updates; None keeps no state.

        Raises
        ------
        ValueError
            Numbers of sets and seeds differ, or the state file has other seeds.
        """
        if not seeds or len(seeds) != len(training_sets):
            raise ValueError(
                f"seeds: found {len(seeds)} for {len(training_sets)} training sets, expected one per set"
            )
        self.config = config
        self.objective = objective
        self.seeds = list(seeds)
        self.state_file = state_file
        self.update = 0
        self.group = GeneratorGroup([_fresh(generator_config, seed).to(device) for seed in seeds])
        # Reference and uncertainty are used by refinement and prediction, not in training.
        unused = torch.zeros(1, device=device)
        self.synthesizer = Synthesizer(self.group.generators[0], unused, unused)
        self.max_gain_db = DEFAULT_MAX_GAIN_DB if generator_config.kind == "prime-log" else None
        self.optimiser = torch.optim.AdamW(
            self.group.stacked.values(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self._device = device
        self._own_sets = tuple(training_sets)
        self._pool, self._first_cases = TrainingSet.pool(training_sets)
        self._drawn: deque[tuple[Tensor, Tensor, Tensor]] = deque()
        if state_file is not None and state_file.exists():
            self._load(state_file)

    def train(self, report: ReportUpdate = lambda *_: None) -> tuple[Generator, ...]:
        """Run the remaining updates and return the final generators, in evaluation mode."""
        while self.update < self.config.n_updates:
            losses = self.train_step()
            if self.update % STATE_EVERY_UPDATES == 0 or self.update == self.config.n_updates:
                if self.state_file is not None:
                    save_state(self.state_file, self._state())
                report(self.update, self.config.n_updates, losses.mean().item())
        return tuple(deepcopy(generator).eval() for generator in self.group.generators)

    def train_step(self) -> Tensor:
        """Make one update of every model; return the losses, [n_models]."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, self.update)
        if not self._drawn:
            self._draw_ahead()
        losses = self._losses(*self._drawn.popleft())
        self.optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        self.optimiser.step()
        # Read last, because a GPU synchronises here; nothing has been saved yet.
        for seed, loss in zip(self.seeds, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                raise FloatingPointError(f"update {self.update}: the loss is {loss} at seed {seed}, not finite")
        self.update += 1
        return losses.detach()

    def _losses(self, places: Tensor, alphas: Tensor, clips: Tensor) -> Tensor:
        """Compute estimates -> filters -> objective on the true paths, [n_models], from all models' draws."""
        primary, secondary, true = self._pool.gather(places, alphas)
        paths = AcousticPaths.from_impulse_responses(primary, secondary)
        ratio = self.synthesizer.path_ratio(paths)
        features = ratio.features.unflatten(0, (len(self.group), -1))
        with network_precision(self.config, self._device):
            correction = self.group(features).flatten(0, 1)
        taps = self.synthesizer.reconstruct(paths, ratio, correction.float(), self.max_gain_db)
        items = self.objective.of_items(true, taps, correction.float().flatten(1), clips, n_fft=DESIGN_N_FFT)
        return items.view(len(self.group), -1).mean(-1)

    def _draw_ahead(self) -> None:
        """Move the draws of the next updates to the device at once."""
        updates = range(self.update, self.update + DRAWN_AHEAD_UPDATES)
        kinds = zip(*(self._draw(update) for update in updates), strict=True)
        self._drawn.extend(zip(*(torch.from_numpy(np.stack(kind)).to(self._device) for kind in kinds), strict=True))

    def _draw(self, update: int) -> tuple[np.ndarray, ...]:
        """Draw pool indices, alphas and clips of every model's items, model after model."""
        config = self.config
        draws = []
        for seed, training_set, first_case in zip(self.seeds, self._own_sets, self._first_cases, strict=True):
            rng = np.random.default_rng([seed, update])
            places, alphas = training_set.draw_items(config.batch_size, config.mixture_probability, rng)
            places[:, 1:] += first_case
            draws.append((places, alphas, self.objective.draw(config.batch_size, rng)))
        return tuple(np.concatenate(item) for item in zip(*draws, strict=True))

    def _state(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "seeds": self.seeds,
            "generator": {name: item.detach() for name, item in self.group.stacked.items()},
            "optimiser": self.optimiser.state_dict(),
        }

    def _load(self, state_file: Path) -> None:
        state = torch.load(state_file, weights_only=True, map_location=self._device)
        found = state.get("seeds")
        if found != self.seeds:
            raise ValueError(f"{state_file}: is the state of seeds {found}, not of {self.seeds}; delete it")
        with torch.no_grad():
            for name, item in self.group.stacked.items():
                item.copy_(state["generator"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.update = state["update"]


class GeneratorGroup:
    """Generators of M models and their stacked weights; model j's weights are views of row j."""

    def __init__(self, generators: Sequence[Generator]) -> None:
        """Stack the weights of generators of one configuration on one device; they live in `stacked` from here on."""
        self.generators = tuple(generators)
        self.stacked: dict[str, Tensor] = {}
        for name, _ in self.generators[0].named_parameters():
            weights = [generator.get_parameter(name) for generator in self.generators]
            self.stacked[name] = nn.Parameter(torch.stack([item.detach() for item in weights]))
            for row, item in zip(self.stacked[name].detach(), weights, strict=True):
                item.data = row
        self._layout = with_unfolded_convolutions(self.generators[0])

    def __len__(self) -> int:
        """Return M."""
        return len(self.generators)

    def __call__(self, features: Tensor) -> Tensor:
        """Apply the generators to their features: [M, batch, 12, n_points] -> [M, batch, ...]."""
        if len(self) == 1:
            weights = {name: item[0] for name, item in self.stacked.items()}
            return functional_call(self.generators[0], weights, (features[0],))[None]

        def one(weights: dict[str, Tensor], member_features: Tensor) -> Tensor:
            return functional_call(self._layout, weights, (member_features,))

        return vmap(one)(self.stacked, features)


def with_unfolded_convolutions(generator: Generator) -> Generator:
    """Copy a generator with `UnfoldedConv1d` convolutions, keeping the names of the weights."""
    copy = deepcopy(generator)
    for parent in list(copy.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv1d):
                setattr(parent, name, UnfoldedConv1d(child))
    return copy


class UnfoldedConv1d(nn.Module):
    """A zero-padded convolution that keeps the length, as one matrix product."""

    def __init__(self, convolution: nn.Conv1d) -> None:
        """Share the weights of a convolution with odd kernel, stride 1, one group, padded to equal length."""
        super().__init__()
        assert convolution.bias is not None
        self.weight, self.bias = convolution.weight, convolution.bias
        self.dilation = int(convolution.dilation[0])

    def forward(self, hidden: Tensor) -> Tensor:
        """Convolve [batch, channels in, n] -> [batch, channels out, n]; under autocast in its precision."""
        weight = self.weight
        if torch.is_autocast_enabled(hidden.device.type):
            precision = torch.get_autocast_dtype(hidden.device.type)
            hidden, weight = hidden.to(precision), weight.to(precision)
        product: Tensor = UnfoldedProduct.apply(hidden.transpose(1, 2), weight, self.dilation)
        return (product + self.bias.to(product.dtype)).transpose(1, 2)


class UnfoldedProduct(torch.autograd.Function):
    """y[l, o] = sum_{c, k} W[o, c, k] x[l + (k - (K - 1) / 2) dilation, c], zero beyond both ends.

    Keeps x, not its K times larger unfolding, for the backward pass; sums in the matrix product's precision.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, dilation: int) -> Tensor:
        """Compute y, [batch, n, o], of x [batch, n, c] and weight [o, c, K] of the same type."""
        return _unfolded(x, weight.shape[-1], dilation).matmul(_as_matrix(weight)).view(*x.shape[:2], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        """Save the inputs of the derivatives."""
        x, weight, ctx.dilation = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """Differentiate by x (the same product with the reversed kernel) and by the weight (unfolded rows times the
        gradient).
        """
        x, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        n_taps = weight.shape[-1]
        turned = weight.flip(-1).transpose(0, 1)
        by_x = _unfolded(gradient, n_taps, ctx.dilation).matmul(_as_matrix(turned)).view(x.shape)
        flat = gradient.reshape(-1, gradient.shape[-1])
        by_matrix = _unfolded(x, n_taps, ctx.dilation).transpose(0, 1).matmul(flat)
        return by_x, by_matrix.view(n_taps, x.shape[-1], -1).permute(2, 1, 0), None


def _unfolded(x: Tensor, n_taps: int, dilation: int) -> Tensor:
    """Place the rows that meet the kernel's taps side by side: [batch, n, c] -> [batch n, n_taps c]."""
    reach = (n_taps // 2) * dilation
    padded = pad(x, (0, 0, reach, reach))
    return padded.unfold(1, x.shape[1], dilation).permute(0, 3, 1, 2).reshape(-1, n_taps * x.shape[-1])


def _as_matrix(weight: Tensor) -> Tensor:
    """Reshape [o, c, K] -> [K c, o]."""
    return weight.permute(2, 1, 0).reshape(-1, weight.shape[0])


def save_state(file: Path, state: dict[str, Any]) -> None:
    """Write a training's state so that a kill leaves the old or the new one."""
    with replacing(file) as beside:
        torch.save(state, beside)


def _fresh(config: GeneratorConfig, seed: int) -> Generator:
    torch.manual_seed(seed)
    return Generator(config)


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


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether bfloat16 is faster than float32 on this device."""
    return device.type != "cpu" or torch.backends.cpu.get_cpu_capability() not in _WITHOUT_BFLOAT16


def network_precision(config: TrainingConfig, device: torch.device) -> torch.autocast:
    """Return the context of a network's precision: bfloat16 if configured and supported, else float32."""
    enabled = config.precision == "bfloat16" and computes_bfloat16(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)
