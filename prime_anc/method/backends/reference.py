"""Starts and updates by torch's operators, in float32 or float64: what the other backends are tested against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.backends.stage_clock import StageClock
from prime_anc.method.errors import SynthesisError
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.posing import OpenLoop
from prime_anc.method.predict import not_finite
from prime_anc.method.profiles import PROFILES
from prime_anc.method.start.generator import Generator
from prime_anc.method.start.synthesizer import Synthesizer
from prime_anc.method.types import DesignOptions, Filter, Float32, ModelParameters, RefinementRecord
from prime_anc.method.updates.update import refine


def build_generator(parameters: ModelParameters) -> Generator:
    """Build a generator with copies of the weights: float32 on the CPU, in evaluation mode, without gradients.

    The process's random state is preserved: building draws weights, and a model may be loaded within a seeded run.
    """
    with torch.random.fork_rng(devices=[]):
        generator = Generator(parameters.config)
    generator.load_state_dict({name: torch.tensor(values) for name, values in parameters.weights.items()})
    return generator.eval().requires_grad_(False)


def build_synthesizer(
    parameters: ModelParameters, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Synthesizer:
    """Build a synthesizer that shares no memory with the parameters."""
    synthesizer = Synthesizer(
        build_generator(parameters),
        torch.tensor(parameters.reference_psd),
        torch.tensor(parameters.band_uncertainty),
    )
    return synthesizer.to(device=device, dtype=dtype).eval()


class ReferenceBackend:
    """`Backend` with torch's operators; stateless. Filters are rounded to float32 whatever the internal precision."""

    name = "reference"
    max_batch = 32
    is_thread_safe = True

    def __init__(
        self,
        parameters: ModelParameters,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Load the model in dtype torch.float32 or torch.float64."""
        self.synthesizer = build_synthesizer(parameters, dtype, device)

    def filters(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        """As `Backend.filters`: plain problems as one batch, the others one by one."""
        plain = [n for n, item in enumerate(problems) if is_plain(item, options)]
        found = dict(zip(plain, self._batch([problems[n] for n in plain], options) if plain else [], strict=True))
        rest = [n for n in range(len(problems)) if n not in found]
        found |= {n: filters_of(self.synthesizer, [problems[n]], options, is_joint=True)[0] for n in rest}
        return [found[n] for n in range(len(problems))]

    def _batch(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        """Make filters for plain problems."""
        return filters_of(self.synthesizer, problems, options)


def is_plain(problem: OpenLoop, options: DesignOptions) -> bool:
    """Return whether a problem is one condition without weights of its own in J: it can be batched."""
    return len(problem.shares) == 1 and problem.profile(options.profile) == PROFILES[options.profile]


def filters_of(
    synthesizer: Synthesizer, problems: Sequence[OpenLoop], options: DesignOptions, *, is_joint: bool = False
) -> list[Filter | SynthesisError]:
    """Make filters with torch's operators, on the synthesizer's device.

    is_joint: whether this is one problem, whose conditions share a filter; else each has one condition and a filter.
    """
    with torch.inference_mode():
        like = synthesizer.reference_psd
        psd = torch.stack([_tensor(item.reference_psd, like) for item in problems])
        limit_db = like.new_tensor([[item.loose_db] for item in problems])
        shares = _tensor(problems[0].shares, like) if is_joint else None
        paths = AcousticPaths(
            *(
                torch.cat([torch.from_numpy(getattr(item, name)) for item in problems]).to(like.device)
                for name in ("primary", "secondary")
            )
        ).to(like.dtype)
        uncertainty = torch.cat([_tensor(item.uncertainty, like) for item in problems])
        clock = StageClock(like.device)
        taps = synthesizer.initial_filter(paths, options.method, limit_db, psd, shares)
        clock.mark("generate")
        refinement = refine(
            paths,
            taps,
            psd,
            n_updates=options.n_updates,
            profile=problems[0].profile(options.profile),
            max_gain_db=limit_db,
            shares=shares,
            uncertainty=uncertainty,
        )
        clock.mark("refine")
        filters, times_ms = refinement.taps.float().cpu().numpy(), clock.times_ms()
        records = [RefinementRecord(**refinement.record(n)) for n in range(len(problems))]  # type: ignore[arg-type]
        return [finite(filters[n].copy(), record, dict(times_ms)) for n, record in enumerate(records)]


def finite(taps: Float32, record: RefinementRecord, times_ms: dict[str, float]) -> Filter | SynthesisError:
    """Return a filter, or NonFiniteFilter if it is not finite."""
    is_finite = np.isfinite(taps).all() and np.isfinite(record.objective).all()
    return Filter(taps, record, times_ms) if is_finite else not_finite()


def _tensor(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)
