"""The stages of a design, recorded once for a batch of one size and replayed over static buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from service.designs import Float32
from service.engine.ear_buffers import EarBuffers
from service.engine.stage_clock import StageClock
from synthesis.conventions import N_TAPS
from synthesis.cpu.refinement import EarRefining
from synthesis.cuda_graph import GraphedStage
from synthesis.gauss_newton import MAX_UPDATES, VERDICTS, Refinement, Updates
from synthesis.noise_reduction import Prediction
from synthesis.octave_bands import AMP_BANDS
from synthesis.path_ratio import projected_ratio_fir, regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import PathRatio, Synthesizer
from synthesis.wiener import design_wmmse

_recording = threading.Lock()
"""CUDA captures one graph at a time in a process, and models are loaded while others design."""

_REFINED = N_TAPS + 3 * MAX_UPDATES + 3
_WIDEST = _REFINED + 2 * (len(AMP_BANDS) + len(fields(Prediction)) - 1)
"""Numbers that go back to the host for an ear: a refinement's and, on both bases, a prediction's."""

Definition = tuple[Callable[..., Sequence[Tensor]], tuple[Tensor, ...]]


class Schedule:
    """One model's stages over buffers for `batch_size` ears: captured on a GPU, run eagerly on a CPU.

    Owns `ears`, what is designed from; on the model's device start and taps, float32 [batch, 2048], what refinement
    starts from and what is predicted; and every stage's outputs. What a call returns is such a buffer, valid until
    the next call: `on_host` copies it out. For one thread only.
    """

    def __init__(self, synthesizer: Synthesizer, batch_size: int) -> None:
        """Allocates the buffers; a stage is recorded when it is first asked for."""
        self.synthesizer = synthesizer
        self.batch_size = batch_size
        device = synthesizer.reference_psd.device
        self._capture = device.type == "cuda"
        self._hosted = None if device.type == "cpu" else torch.empty(batch_size * _WIDEST, pin_memory=self._capture)
        self.ears = EarBuffers(batch_size, synthesizer.reference_psd)
        self.start = torch.zeros(batch_size, N_TAPS, device=device)
        self.taps = torch.zeros(batch_size, N_TAPS, device=device)
        self.n_ears = batch_size
        """Rows in use, the first ones; `wmmse` solves no others."""
        self._stages: dict[tuple[Any, ...], GraphedStage] = {}
        # By profile. What `begin` made when it was recorded stays, for its tensors are those that replays work on.
        self._updates: dict[str, Updates] = {}

    def design(self, method: str, n_updates: int, profile: str, clock: StageClock) -> Tensor:
        """Design for what the buffers hold: `taps`, and the refinement in the form that `account` reads."""
        initial = self._initial_filter(method, clock)
        self.start[: len(initial)].copy_(initial)
        # All recorded before any is run: to record an update makes some.
        begin, update, refined = (self._stage(name, profile) for name in ("begin", "update", "refined"))
        begin.run()
        for _ in range(n_updates):
            update.run()
        (packed,) = refined.run()
        self.taps.copy_(packed[:, :N_TAPS])
        clock.mark("refine")
        return packed

    def predict(self, basis: str, clock: StageClock) -> Tensor:
        """Figures of `taps`: the fields of `Prediction` side by side, [batch, 23 + 7]."""
        (packed,) = self._stage("predict", basis).run()
        clock.mark("predict")
        return packed

    def on_host(self, parts: Sequence[Tensor]) -> list[Float32]:
        """Copies of some of what the calls returned, in one transfer, once all that was asked for is done."""
        if self._hosted is None:
            return [each.numpy().copy() for each in parts]
        joined = torch.cat(tuple(parts), dim=1)
        hosted = self._hosted[: joined.numel()].view_as(joined).copy_(joined, non_blocking=True)
        if self._capture:
            torch.cuda.current_stream().synchronize()
        return np.split(hosted.numpy().copy(), np.cumsum([each.shape[1] for each in parts])[:-1], axis=1)

    def tensor_bytes(self) -> int:
        """Memory of the buffers and of the stages' outputs."""
        outputs = [each for stage in [*self._stages.values()] for each in stage.outputs]
        return self.ears.nbytes + sum(each.nbytes for each in (self.start, self.taps, *outputs))

    def graph_bytes(self) -> int:
        """Device memory that the recorded stages keep to themselves; 0 on a CPU."""
        if not self._capture:
            return 0
        pools = [stage.memory_pool for stage in self._stages.values()]
        segments = torch.cuda.memory_snapshot()
        return sum(each["total_size"] for each in segments if tuple(each["segment_pool_id"]) in pools)

    def _initial_filter(self, method: str, clock: StageClock) -> Tensor:
        """Taps before any update. Stages that the method does not have are not marked."""
        if method == "wmmse":  # a double-precision solve on the CPU: nothing to record
            taps = self._solve_wmmse()
            clock.mark("generate")
            return taps
        if method == "projected_ratio":
            (taps,) = self._stage("project").run()
            clock.mark("reconstruct")
            return taps
        self._stage("path_ratio").run()
        clock.mark("path_ratio")
        if method == "prime":
            self._stage("generate").run()
            clock.mark("generate")
        (taps,) = self._stage("reconstruct", method).run()
        clock.mark("reconstruct")
        return taps

    def _solve_wmmse(self) -> Tensor:
        """Of the rows in use. Where one ear has no solution, each is solved alone, and that one's filter is NaN."""
        try:
            return self._solve(slice(0, self.n_ears))
        except (ValueError, np.linalg.LinAlgError):
            return torch.cat([self._solve_one(slice(row, row + 1)) for row in range(self.n_ears)])

    def _solve_one(self, row: slice) -> Tensor:
        try:
            return self._solve(row)
        except (ValueError, np.linalg.LinAlgError):
            return torch.full_like(self.start[row], torch.nan)

    def _solve(self, rows: slice) -> Tensor:
        ears = self.ears.device
        return design_wmmse(AcousticPaths(ears.primary[rows], ears.secondary[rows]), ears.reference_psd[rows])

    def _stage(self, *key: Any) -> GraphedStage:
        """A recorded stage. Stages are chained without copies: the outputs of one are the inputs of the next."""
        if key not in self._stages:
            function, inputs = self._definition(key)
            with _recording if self._capture else nullcontext():
                self._stages[key] = GraphedStage(function, inputs, capture=self._capture, share_inputs=True)
        return self._stages[key]

    def _definition(self, key: tuple[Any, ...]) -> Definition:
        """What a stage computes, and from which buffers."""
        # Not one of them holds the schedule, which holds them: a model that is retired goes at once.
        model, ears, updates = self.synthesizer, self.ears.device, self._updates
        paths = (ears.primary, ears.secondary)

        def path_ratio(primary: Tensor, secondary: Tensor) -> tuple[Tensor, ...]:
            ratio = model.path_ratio(AcousticPaths(primary, secondary))
            return ratio.log_base, ratio.log_paths, ratio.features

        def reconstruct(
            primary: Tensor,
            secondary: Tensor,
            log_base: Tensor,
            log_paths: Tensor,
            features: Tensor,
            ceiling: Tensor,
            correction: Tensor | None = None,
        ) -> tuple[Tensor]:
            ratio = PathRatio(log_base, log_paths, features)
            return (model.reconstruct(AcousticPaths(primary, secondary), ratio, correction, ceiling),)

        def project(primary: Tensor, secondary: Tensor) -> tuple[Tensor]:
            return (projected_ratio_fir(regularised_ratio(AcousticPaths(primary, secondary))),)

        def begin(
            profile: str, primary: Tensor, secondary: Tensor, start: Tensor, ceiling: Tensor, psd: Tensor
        ) -> tuple[()]:
            updates[profile] = model.refining(AcousticPaths(primary, secondary), start, profile, ceiling, psd)
            return ()

        def update(profile: str) -> tuple[()]:
            updates[profile].update()
            return ()

        match key:
            case ("path_ratio",):
                return path_ratio, paths
            case ("project",):
                return project, paths
            case ("generate",):
                return lambda features: (model.generate(features),), self._stage("path_ratio").outputs[2:]
            case ("reconstruct", "ratio_base"):
                return reconstruct, (*paths, *self._stage("path_ratio").outputs, ears.max_gain_db)
            case ("reconstruct", _):
                ratio, correction = self._stage("path_ratio").outputs, self._stage("generate").outputs
                return reconstruct, (*paths, *ratio, ears.max_gain_db, *correction)
            case ("begin", profile):
                inputs: tuple[Tensor, ...] = (*paths, self.start, ears.max_gain_db, ears.reference_psd)
                return partial(begin, profile), inputs
            case ("update", profile):
                return partial(update, profile), ()
            case ("refined", profile):
                return lambda: (side_by_side(updates[profile].result()),), ()
            case ("predict", "coherence"):
                inputs = (*paths, self.taps, ears.coherence, ears.reference_psd)
                return lambda p, s, taps, c, psd: (
                    side_by_side(model.predict(AcousticPaths(p, s), taps, c, psd)),
                ), inputs
            case ("predict", "model"):
                inputs = (*paths, self.taps, ears.reference_psd)
                return lambda p, s, taps, psd: (
                    side_by_side(model.predict(AcousticPaths(p, s), taps, None, psd)),
                ), inputs
        raise KeyError(key)


def side_by_side(record: Refinement | Prediction) -> Tensor:
    """The tensors of a record, in order, along the last axis."""
    values = (getattr(record, each.name) for each in fields(record))
    columns = [each if each.dtype == torch.float32 else each.float() for each in values]
    return torch.cat([each if each.ndim == 2 else each.unsqueeze(-1) for each in columns], dim=-1)


def account(packed: Float32, n_updates: int) -> dict[str, Any]:
    """One row of what `side_by_side` made of a refinement, in plain values, lists cut to what was applied.

    The same as `Refinement.verdict`, from one array on the host instead of six tensors.
    """
    applied, stopped = int(packed[-2]), int(packed[-1])
    objective, step_scale, pcg_residual = _places(n_updates)
    return {
        "requested": n_updates,
        "applied": applied,
        "stopped": VERDICTS[stopped],
        "objective": packed[objective:][: applied + 1].tolist(),
        "step_scale": packed[step_scale:][:applied].tolist(),
        "pcg_residual": packed[pcg_residual:][:applied].tolist(),
    }


def in_a_row(ear: EarRefining, n_updates: int) -> Float32:
    """What `side_by_side` makes of a refinement, for one ear of which so many updates were asked."""
    row = np.full(_REFINED, np.nan, np.float32)
    row[:N_TAPS] = ear.taps
    values = ear.objective, ear.step_scale, ear.pcg_residual
    for place, each in zip(_places(n_updates), values, strict=True):
        row[place : place + len(each)] = each
    row[-2:] = len(ear.step_scale), ear.stopped
    return row


def _places(n_updates: int) -> tuple[int, int, int]:
    """Where objective, step_scale and pcg_residual begin: the numbers of each end where its columns do."""
    end = N_TAPS + MAX_UPDATES + 1
    return end - n_updates - 1, end + MAX_UPDATES - n_updates, end + 2 * MAX_UPDATES - n_updates
