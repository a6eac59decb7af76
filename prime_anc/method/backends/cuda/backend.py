"""`Backend` on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from prime_anc.method.backends.cuda.graphs import GIVEN, RECORDED_METHODS, BatchGraphs
from prime_anc.method.backends.cuda.stages import Stages
from prime_anc.method.backends.reference import ReferenceBackend, filters_of, finite
from prime_anc.method.backends.stage_clock import StageClock
from prime_anc.method.errors import DeviceLost, SynthesisError
from prime_anc.method.methods import STARTS, first_taps
from prime_anc.method.posing import OpenLoop
from prime_anc.method.profiles import BUDGET, FIRST_UPDATES, MAX_UPDATES, PROFILES, STOP_REASONS, shows_far
from prime_anc.method.types import DesignOptions, Filter, Float32, ModelParameters, RefinementRecord

# A batch runs in the smallest of these that fits it; the other rows are unused.
CAPTURE_SIZES = (1, 8, 32)


class CudaBackend(ReferenceBackend):
    """One model on a GPU, for one thread at a time: its buffers are shared by all calls.

    Everything runs on a separate stream and is captured when the backend is created. In `times_ms`, `decode` is the
    copy to the GPU, `generate` everything before the updates, and `refine` the updates.

    MemoryError means that the GPU has no memory for a call; DeviceLost that its CUDA context is unusable, which ends
    the process.
    """

    name = "cuda"
    max_batch = CAPTURE_SIZES[-1]
    is_thread_safe = False

    def __init__(self, parameters: ModelParameters, device: str | torch.device = "cuda") -> None:
        """Load the model; on a CPU device the stages are called instead of captured, over the same buffers."""
        self.device = torch.device(device)
        use_full_float32()
        self._on_gpu = self.device.type == "cuda"
        self._stream = torch.cuda.Stream(self.device) if self._on_gpu else None
        with self._on_device():
            super().__init__(parameters, torch.float32, self.device)
            self._stages = Stages(self.synthesizer)
            pool = torch.cuda.graph_pool_handle() if self._on_gpu else None
            self._batches = {size: BatchGraphs(self._stages, size, pool) for size in CAPTURE_SIZES}
            self._clock = StageClock(self.device)
            if self._on_gpu:
                for batch in self._batches.values():
                    batch.record(*_all_keys())

    def filters(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        """As `Backend.filters`, up to 32 problems; DeviceLost if the GPU has failed.

        Several conditions and a problem's own weights in J use operators that are not captured.
        """
        with self._on_device():
            return super().filters(problems, options)

    def _batch(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        method = options.method if options.method in RECORDED_METHODS else GIVEN
        start, update = ((stage, method, options.profile) for stage in ("start", "update"))
        batch = self._graphs_of(len(problems))
        batch.record(start, update)
        self._clock.start()
        batch.inputs.write(problems)
        self._clock.mark("decode")
        if options.method == "wmmse":
            batch.solve_wmmse(len(problems))
        elif options.method in STARTS:
            for row, item in enumerate(problems):
                first = first_taps(options.method, item.primary, item.secondary, item.shares)
                batch.start[row].copy_(torch.from_numpy(first))
        batch.run(*start)
        self._clock.mark("generate")
        n_steps = options.n_updates
        if PROFILES[options.profile].settles:
            n_steps = min(n_steps, FIRST_UPDATES)
        for _ in range(n_steps):
            batch.run(*update)
        self._clock.mark("refine")
        taps, history, n_applied, stopped = batch.outputs.fetch()
        records = [_record(*item, n_steps) for item in zip(history, n_applied, stopped, strict=True)]
        far = [row for row in range(len(problems)) if _is_far(records[row], options)]
        exact = {row: filters_of(self.synthesizer, [problems[row]], options)[0] for row in far}
        if far:
            self._clock.mark("refine")
        times_ms = self._clock.times_ms()
        return [
            exact.get(row) or finite(taps[row].copy(), records[row], dict(times_ms)) for row in range(len(problems))
        ]

    @property
    def nbytes(self) -> int:
        """Return the bytes of weights and buffers on the device, without the graphs' memory."""
        return self._stages.nbytes() + sum(batch.nbytes for batch in self._batches.values())

    def _graphs_of(self, n_ears: int) -> BatchGraphs:
        if not 1 <= n_ears <= self.max_batch:
            raise ValueError(f"inputs: {n_ears} ears were given; give 1 to {self.max_batch}")
        return self._batches[next(size for size in CAPTURE_SIZES if size >= n_ears)]

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
    return [
        (stage, method, profile)
        for method in (*RECORDED_METHODS, GIVEN)
        for profile in PROFILES
        for stage in ("start", "update")
    ]


def _is_far(record: RefinementRecord, options: DesignOptions) -> bool:
    """Whether updates go on by steps that no graph records (`prime_anc.method.updates.update.refine`)."""
    if not PROFILES[options.profile].settles or record.stopped != STOP_REASONS[BUDGET]:
        return False
    decreases = -np.diff(record.objective)
    return record.applied < options.n_updates or bool(shows_far(decreases, np.append(np.nan, decreases[:-1])).any())


def _record(history: Float32, applied: np.int32, stopped: np.int32, n_updates: int) -> RefinementRecord:
    """Read the record of updates from history [3, 9]; its last 1 + n_updates columns are the start and the updates."""
    columns, n_applied = history[:, MAX_UPDATES - n_updates :].tolist(), int(applied)
    return RefinementRecord(
        applied=n_applied,
        stopped=STOP_REASONS[int(stopped)],
        objective=columns[0][: n_applied + 1],
        step_scale=columns[1][1 : n_applied + 1],
        pcg_residual=columns[2][1 : n_applied + 1],
    )
