"""`Backend` on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from prime_anc.core import CpuBackend
from prime_anc.method.backends.cuda.graphs import GIVEN, RECORDED_METHODS, BatchGraphs
from prime_anc.method.backends.cuda.stages import Stages
from prime_anc.method.backends.reference import draft_all, joint_draft
from prime_anc.method.backends.stage_clock import StageClock
from prime_anc.method.errors import DeviceLost, SynthesisError
from prime_anc.method.methods import STARTS
from prime_anc.method.predict import not_finite
from prime_anc.method.profiles import BUDGET, FIRST_UPDATES, MAX_UPDATES, PROFILES, STOP_REASONS, shows_far
from prime_anc.method.types import (
    Complex64,
    DesignOptions,
    Draft,
    Float32,
    ModelParameters,
    Prediction,
    Problem,
    RefinementRecord,
)

# A batch runs in the smallest of these that fits it; the other rows are unused.
CAPTURE_SIZES = (1, 8, 32)


class CudaBackend:
    """One model on a GPU, for one thread at a time: its buffers are shared by all calls.

    Everything runs on a separate stream and is captured when the backend is created. In `times_ms`, `decode` is the
    copy to the GPU, `generate` everything before the updates, and `refine` the updates.

    MemoryError means that the GPU has no memory for a call; DeviceLost that its CUDA context is unusable, which ends
    the process.
    """

    name = "cuda"
    max_batch = CAPTURE_SIZES[-1]
    is_thread_safe = False
    closes_loops = False
    predicts_wmmse = False

    def __init__(self, parameters: ModelParameters, device: str | torch.device = "cuda") -> None:
        """Load the model; on a CPU device the stages are called instead of captured, over the same buffers."""
        self.device = torch.device(device)
        self._core = CpuBackend(parameters)
        use_full_float32()
        self._on_gpu = self.device.type == "cuda"
        self._stream = torch.cuda.Stream(self.device) if self._on_gpu else None
        with self._on_device():
            self._stages = Stages(parameters, self.device)
            pool = torch.cuda.graph_pool_handle() if self._on_gpu else None
            self._batches = {size: BatchGraphs(self._stages, size, pool) for size in CAPTURE_SIZES}
            self._clock = StageClock(self.device)
            if self._on_gpu:
                for batch in self._batches.values():
                    batch.record(*_all_keys())

    def draft(
        self, problems: Sequence[Problem], options: DesignOptions, with_wmmse: bool
    ) -> list[Draft | SynthesisError]:
        """Draft as `Backend.draft`, up to 32 problems, without predicting WMMSE; DeviceLost if the GPU has failed.

        Several conditions and a problem's own weights in J use operators that are not captured.
        """
        with self._on_device():
            return draft_all(
                self._stages.synthesizer, problems, options, lambda simple: self._draft(simple, options)
            )

    def predict(
        self, problems: Sequence[Problem], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """Predict as `Backend.predict`, by the CPU's core."""
        return self._core.predict(problems, taps)

    def _draft(self, problems: Sequence[Problem], options: DesignOptions) -> list[Draft | SynthesisError]:
        method = options.method if options.method in RECORDED_METHODS else GIVEN
        start, update = ((stage, method, options.profile) for stage in ("start", "update"))
        batch = self._batch(len(problems))
        batch.record(("decode",), start, update)
        faults = self._load(batch, problems)
        if options.method == "wmmse":
            batch.solve_wmmse(len(problems))
        elif start_of := STARTS.get(options.method):
            rows = [row for row in range(len(problems)) if row not in faults]
            pairs = [
                (condition.primary, condition.secondary) for row in rows for condition in problems[row].conditions
            ]
            batch.write_start(rows, [start_of(*pair) for pair in pairs])
        batch.run(*start)
        self._clock.mark("generate")
        n_steps = options.n_updates
        if PROFILES[options.profile].settles:
            n_steps = min(n_steps, FIRST_UPDATES)
        for _ in range(n_steps):
            batch.run(*update)
        self._clock.mark("refine")
        taps, history, n_applied, stopped = batch.outputs.fetch()
        records = {
            row: _record(history[row], int(n_applied[row]), int(stopped[row]), n_steps)
            for row in range(len(problems))
            if row not in faults
        }
        if far := [row for row, record in records.items() if _is_far(record, options)]:
            for row in far:
                draft = joint_draft(self._stages.synthesizer, problems[row], options)
                records[row], taps[row] = draft.refinement, draft.taps
            self._clock.mark("refine")
        filters = [taps[row].copy() for row in records]
        predictions = dict(
            zip(records, self._core.predict([problems[row] for row in records], filters), strict=True)
        )
        self._clock.mark("predict")
        times_ms = self._clock.times_ms()
        found: dict[int, Draft | SynthesisError] = dict(faults)
        for (row, prediction), made in zip(predictions.items(), filters, strict=True):
            if isinstance(prediction, Prediction) and np.isfinite(made).all():
                found[row] = Draft(made, records[row], dict(times_ms), prediction)
            else:
                found[row] = not_finite()
        return [found[row] for row in range(len(problems))]

    @property
    def nbytes(self) -> int:
        """Return the bytes of weights and buffers on the device, without the graphs' memory."""
        return self._stages.nbytes() + sum(batch.nbytes for batch in self._batches.values())

    def _batch(self, n_ears: int) -> BatchGraphs:
        if not 1 <= n_ears <= self.max_batch:
            raise ValueError(f"inputs: {n_ears} ears were given; give 1 to {self.max_batch}")
        return self._batches[next(size for size in CAPTURE_SIZES if size >= n_ears)]

    def _load(self, batch: BatchGraphs, problems: Sequence[Problem]) -> dict[int, SynthesisError]:
        """Copy the conditions to the device; return the errors by row."""
        self._clock.start()
        faults: dict[int, SynthesisError] = dict(batch.inputs.write(problems))
        if batch.inputs.holds_responses:
            batch.run("decode")
        self._clock.mark("decode")
        return faults

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Run on the backend's stream, without gradients; torch's GPU errors become MemoryError and DeviceLost."""
        try:
            with torch.inference_mode(), torch.cuda.stream(self._stream):
                yield
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"the GPU has no memory left ({error})") from error
        except torch.AcceleratorError as error:
            raise DeviceLost(f"the GPU has failed ({error}); restart the process") from error


def use_full_float32() -> None:
    """Switch TF32 off, which keeps 10 of float32's 23 bits in convolutions and matrix products."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def _all_keys() -> list[tuple[str, ...]]:
    """Return the keys of all stages, starts before their updates."""
    designs = [
        (stage, method, profile)
        for method in (*RECORDED_METHODS, GIVEN)
        for profile in PROFILES
        for stage in ("start", "update")
    ]
    return [("decode",), *designs]


def _is_far(record: RefinementRecord, options: DesignOptions) -> bool:
    """Whether updates go on by steps that no graph records (`prime_anc.method.update.refine`)."""
    if not PROFILES[options.profile].settles or record.stopped != STOP_REASONS[BUDGET]:
        return False
    decreases = -np.diff(record.objective)
    return record.applied < options.n_updates or bool(shows_far(decreases, np.append(np.nan, decreases[:-1])).any())


def _record(history: Float32, n_applied: int, stopped: int, n_updates: int) -> RefinementRecord:
    """Read the record of updates from history [3, 9]; its last 1 + n_updates columns are the start and the updates."""
    columns = history[:, MAX_UPDATES - n_updates :].tolist()
    return RefinementRecord(
        applied=n_applied,
        stopped=STOP_REASONS[stopped],
        objective=columns[0][: n_applied + 1],
        step_scale=columns[1][1 : n_applied + 1],
        pcg_residual=columns[2][1 : n_applied + 1],
    )
