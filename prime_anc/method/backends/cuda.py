"""`Backend` on an NVIDIA GPU: the stages of a design are compiled by torch and replayed as CUDA graphs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from prime_anc.method.backends.reference import ReferenceBackend, filters_of, finite
from prime_anc.method.backends.stage_clock import StageClock
from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import N_BINS, N_TAPS
from prime_anc.method.errors import DeviceLost, SynthesisError
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.posing import OpenLoop
from prime_anc.method.profiles import BUDGET, FIRST_UPDATES, MAX_UPDATES, PROFILES, STOP_REASONS, shows_far
from prime_anc.method.start.synthesizer import Synthesizer
from prime_anc.method.types import DesignOptions, Filter, ModelParameters, RefinementRecord
from prime_anc.method.updates.update import GaussNewtonState
from prime_anc.options import DEFAULT_MAX_GAIN_DB

# A batch runs in the smaller of these that fits it; the other rows are unused.
BATCH_SIZES = (1, 32)
# Starts that are computed on the GPU; the others are solved on the host.
COMPILED_METHODS = ("prime", "ratio_base")
# A problem's columns in the block that is copied to the GPU: P, S, r, the unknown shares, the ceiling.
COLUMNS = (2 * N_BINS, 2 * N_BINS, N_BINS, 2 * len(WIDE_BANDS), 1)
# Columns of an answer: taps; J, step scales and residuals of the updates; updates applied; why they stopped.
ANSWER = (N_TAPS, MAX_UPDATES + 1, MAX_UPDATES, MAX_UPDATES, 1, 1)

# A function of tensors alone, which it may change in place.
Function = Callable[..., tuple[Tensor, ...]]

# A process can trace and capture only one graph at a time.
_capturing = threading.Lock()


class CudaBackend(ReferenceBackend):
    """One model on a GPU, for one thread at a time: its tensors are shared by all calls.

    Everything runs on a separate stream and is compiled and captured when the backend is created. In `times_ms`,
    `decode` is the copy to the GPU, `generate` everything before the updates, and `refine` the updates.

    MemoryError means that the GPU has no memory for a call; DeviceLost that its CUDA context is unusable, which ends
    the process.
    """

    name = "cuda"
    max_batch = BATCH_SIZES[-1]
    is_thread_safe = False

    def __init__(self, parameters: ModelParameters, device: str | torch.device = "cuda") -> None:
        """Load the model; on a CPU device the stages are called, neither compiled nor captured."""
        self.device = torch.device(device)
        use_full_float32()
        on_gpu = self.device.type == "cuda"
        self._stream = torch.cuda.Stream(self.device) if on_gpu else None
        with self._on_device():
            super().__init__(parameters, torch.float32, self.device)
            prepare = partial(captured, pool=torch.cuda.graph_pool_handle()) if on_gpu else _as_it_is
            self._batches = {size: Batch(self.synthesizer, size, prepare) for size in BATCH_SIZES}
            self._clock = StageClock(self.device)

    def filters(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        """As `Backend.filters`, up to 32 problems; DeviceLost if the GPU has failed.

        Several conditions and a problem's own weights in J use operators that are not captured.
        """
        with self._on_device():
            return super().filters(problems, options)

    def _batch(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        if len(problems) > self.max_batch:
            raise ValueError(f"inputs: {len(problems)} ears were given; give 1 to {self.max_batch}")
        batch = self._batches[next(size for size in BATCH_SIZES if size >= len(problems))]
        n_steps = min(options.n_updates, FIRST_UPDATES) if _settles(options) else options.n_updates
        self._clock.start()
        batch.write(problems)
        self._clock.mark("decode")
        batch.start(options.method, len(problems))
        batch.begin(options.profile)
        self._clock.mark("generate")
        for _ in range(n_steps):
            batch.update(options.profile)
        self._clock.mark("refine")
        taps, *columns = batch.answers()
        records = [_record([column[row] for column in columns], n_steps) for row in range(len(problems))]
        far = [row for row in range(len(problems)) if _settles(options) and _is_far(records[row], options)]
        exact = {row: filters_of(self.synthesizer, [problems[row]], options)[0] for row in far}
        if far:
            self._clock.mark("refine")
        times_ms = self._clock.times_ms()
        return [
            exact.get(row) or finite(taps[row].copy(), record, dict(times_ms)) for row, record in enumerate(records)
        ]

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Run on the backend's stream, without gradients; torch's GPU errors become MemoryError and DeviceLost."""
        try:
            with torch.no_grad(), torch.cuda.stream(self._stream):
                yield
        except torch.OutOfMemoryError as error:
            raise MemoryError(f"the GPU has no memory left ({error})") from error
        except torch.AcceleratorError as error:
            raise DeviceLost(f"the GPU has failed ({error}); restart the process") from error


class Batch:
    """The stages of designs of up to `size` problems, over tensors whose places never change.

    prepare: makes of a stage, and of the tensors on which it will run, what is called in its place.
    """

    def __init__(self, synthesizer: Synthesizer, size: int, prepare: Callable[..., Function]) -> None:
        reference_psd = synthesizer.reference_psd
        self._synthesizer, self._device = synthesizer, reference_psd.device
        self._staged = torch.ones(size, sum(COLUMNS), pin_memory=reference_psd.is_cuda)
        host = self._staged.split(COLUMNS, -1)
        host[2][:], host[3][:], host[4][:] = reference_psd.cpu(), 0.0, DEFAULT_MAX_GAIN_DB
        self.block = self._staged.to(self._device, copy=True)
        self.taps = reference_psd.new_zeros(size, N_TAPS)
        self._starts = {
            method: prepare(partial(first_taps, synthesizer, method), (self.block,)) for method in COMPILED_METHODS
        }
        self._begins, self._updates = {}, {}
        for profile in PROFILES:
            state = begin_state(profile, self.block, self.taps)
            self._begins[profile] = prepare(partial(begin, profile), (self.block, self.taps))
            tensors = self._begins[profile](self.block, self.taps)[1:]
            self._updates[profile] = prepare(partial(update, state), tensors)

    def write(self, problems: Sequence[OpenLoop]) -> None:
        """Fill the first rows and copy all to the device; only after the answers of the call before."""
        for row, item in enumerate(problems):
            values = (item.primary[0], item.secondary[0], item.reference_psd, item.uncertainty[0], item.loose_db)
            parts = [np.asarray(value).astype(np.result_type(value, np.float32), copy=False) for value in values]
            self._staged.numpy()[row] = np.concatenate([part.ravel().view(np.float32) for part in parts])
        self.block.copy_(self._staged, non_blocking=True)

    def start(self, method: str, n_problems: int) -> None:
        """Make the first taps of the first rows; NaN for one without a solution."""
        if method in COMPILED_METHODS:
            self.taps.copy_(self._starts[method](self.block)[0])
            return
        for row in range(n_problems):
            try:
                self.taps[row] = first_taps(self._synthesizer, method, self.block[row : row + 1])[0][0]
            except (ValueError, np.linalg.LinAlgError):
                self.taps[row] = torch.nan

    def begin(self, profile: str) -> None:
        """Evaluate J of the first taps."""
        self._answers, *self._state = self._begins[profile](self.block, self.taps)

    def update(self, profile: str) -> None:
        """Make one update of all rows."""
        (self._answers,) = self._updates[profile](*self._state)

    def answers(self) -> list[np.ndarray]:
        """Copy the answers to the host, [size, ...] by ANSWER."""
        return [item.numpy() for item in self._answers.cpu().split(ANSWER, -1)]


def first_taps(synthesizer: Synthesizer, method: str, block: Tensor) -> tuple[Tensor, ...]:
    """Make taps [size, 2048] before any update."""
    paths, psd, _, limit_db = _problems(block)
    return (synthesizer.initial_filter(paths, method, limit_db, psd),)


def begin_state(profile: str, block: Tensor, taps: Tensor) -> GaussNewtonState:
    """Evaluate J of the taps."""
    paths, psd, uncertainty, limit_db = _problems(block)
    return GaussNewtonState(
        paths, taps, psd, profile=PROFILES[profile], max_gain_db=limit_db, uncertainty=uncertainty
    )


def begin(profile: str, block: Tensor, taps: Tensor) -> tuple[Tensor, ...]:
    """Return the answers without updates, and the tensors of the state that `update` changes."""
    state = begin_state(profile, block, taps)
    return _answers(state), *tensors_of(state)


def update(like: GaussNewtonState, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Make one update in the tensors of a state, and return the answers; `like` has the rest of it."""
    state = copy.deepcopy(like, {id(old): new for old, new in zip(tensors_of(like), tensors, strict=True)})
    state.update()
    return (_answers(state),)


def tensors_of(item: Any, found: dict[int, Tensor] | None = None) -> list[Tensor]:
    """Return the tensors of an object and of its attributes, each once."""
    found = {} if found is None else found
    if isinstance(item, Tensor):
        found[id(item)] = item
    else:
        for value in getattr(item, "__dict__", {}).values():
            tensors_of(value, found)
    return list(found.values())


def compiled(function: Function, tensors: Sequence[Tensor]) -> Function:
    """Compile a stage for tensors of these shapes.

    It is traced first: torch.compile by itself divides it at each call that the array API dispatches.
    """
    run: Function = torch.compile(make_fx(function)(*tensors), dynamic=False)
    return run


def captured(function: Function, tensors: Sequence[Tensor], pool: Any) -> Function:
    """Compile a stage and capture it as a CUDA graph over these tensors; return its replay.

    The graphs of a model share the pool's memory, which is safe because they are replayed one after the other on one
    stream, and every tensor that outlives a replay is kept referenced.
    """
    with _capturing:
        run = compiled(function, tensors)
        run(*tensors)  # compiles; FFT plans, workspaces and constants must not be created during the capture
        torch.cuda.current_stream().synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate or copy to the host meanwhile; only this thread can invalidate the capture.
        with torch.cuda.graph(
            graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):
            outputs = run(*tensors)

    def replay(*_: Tensor) -> tuple[Tensor, ...]:
        graph.replay()
        return outputs

    return replay


def use_full_float32() -> None:
    """Switch TF32 off, which keeps 10 of float32's 23 bits in convolutions and matrix products."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def _as_it_is(function: Function, tensors: Sequence[Tensor]) -> Function:
    return function


def _problems(block: Tensor) -> tuple[AcousticPaths, Tensor, Tensor, Tensor]:
    """Return paths, reference spectra, unknown shares [size, 2, 31] and ceilings [size, 1] of a block."""
    primary, secondary, psd, uncertainty, limit_db = block.split(COLUMNS, -1)
    spectra = (torch.view_as_complex(item.reshape(len(block), N_BINS, 2)) for item in (primary, secondary))
    return AcousticPaths(*spectra), psd, uncertainty.reshape(len(block), 2, -1), limit_db


def _answers(state: GaussNewtonState) -> Tensor:
    found = state.result()
    counts = torch.stack((found.n_applied, found.stopped), -1)
    return torch.cat((found.taps, found.objective, found.step_scale, found.pcg_residual, counts), -1)


def _settles(options: DesignOptions) -> bool:
    return PROFILES[options.profile].settles


def _is_far(record: RefinementRecord, options: DesignOptions) -> bool:
    """Whether updates go on by steps that no graph has (`prime_anc.method.updates.update.refine`)."""
    if record.stopped != STOP_REASONS[BUDGET]:
        return False
    decreases = -np.diff(record.objective)
    return record.applied < options.n_updates or bool(shows_far(decreases, np.append(np.nan, decreases[:-1])).any())


def _record(columns: Sequence[np.ndarray], n_updates: int) -> RefinementRecord:
    """Read a row's columns after the taps; the latest update is the last of each."""
    *history, applied, stopped = columns
    n_applied, first = int(applied[0]), MAX_UPDATES - n_updates
    objective, step_scale, residual = (item[first:].tolist() for item in history)
    return RefinementRecord(
        applied=n_applied,
        stopped=STOP_REASONS[int(stopped[0])],
        objective=objective[: n_applied + 1],
        step_scale=step_scale[:n_applied],
        pcg_residual=residual[:n_applied],
    )
