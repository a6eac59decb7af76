"""Stages of a design as CUDA graphs: captured once, replayed over the same memory for every request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from prime_anc.method.backends.cuda.buffers import BatchInputs, BatchOutputs
from prime_anc.method.backends.cuda.stages import Stages, Update
from prime_anc.method.conventions import N_TAPS

Function = Callable[[], None]

# A process can capture only one graph at a time.
_recording = threading.Lock()


def capture(function: Function, pool: Any) -> Function:
    """Capture the function's launches on the current stream as a CUDA graph; return its replay.

    The function is called once before: FFT plans, workspaces and constants must not be created during the capture.

    Parameters
    ----------
    function
        Function to capture.
    pool
        Memory shared by all graphs of a model, safe because they are replayed sequentially on one stream, and every
        tensor that outlives a replay is kept referenced.
    """
    with _recording:
        function()
        torch.cuda.current_stream().synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate or copy to the host meanwhile; only this thread can invalidate the capture.
        with torch.cuda.graph(
            graph, pool=pool, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):
            function()
    return graph.replay


RECORDED_METHODS = ("prime", "ratio_base")
# Key of methods whose initial filter is made on the host: WMMSE and `prime_anc.method.methods`.
GIVEN = "given"


class BatchGraphs:
    """Stages of designs of up to `size` ears: captured on a GPU, called on a CPU over the same memory.

    Owns `inputs`, `outputs`, `start` (float32 [size, 2048], filters made on the host) and the Gauss-Newton states, one
    per method and profile, which live in the graphs' memory pool. All addresses are fixed, as `run` asserts. For one
    thread, in one stream.
    """

    def __init__(self, stages: Stages, size: int, pool: Any = None) -> None:
        """Prepare the stages; pool is from `torch.cuda.graph_pool_handle`, None calls instead of capturing them."""
        self._stages = stages
        self._pool = pool
        self.inputs = BatchInputs(size, stages.reference_psd)
        self.outputs = BatchOutputs(size, stages.reference_psd.device)
        self.start = torch.zeros(size, N_TAPS, device=stages.reference_psd.device)
        self._graphs: dict[tuple[str, ...], Function] = {}
        self._updates: dict[tuple[str, str], Update] = {}
        self._addresses = self._buffer_addresses()

    def record(self, *keys: tuple[str, ...]) -> None:
        """Capture what is not captured yet: ("start", method, profile) or ("update", method, profile).
        Capturing an update also makes one, so record before the first `run`."""
        for key in keys:
            if key not in self._graphs:
                function = self._function(*key)
                self._graphs[key] = function if self._pool is None else capture(function, self._pool)

    def run(self, *key: str) -> None:
        """Replay a stage over the current content of the buffers."""
        if __debug__ and self._buffer_addresses() != self._addresses:
            raise AssertionError("a static buffer of a recorded stage has moved")
        self._graphs[key]()

    def solve_wmmse(self, n_ears: int) -> None:
        """Solve WMMSE on the host and copy the filters to `start`."""
        self.start[:n_ears].copy_(self._stages.solve_wmmse(self.inputs, n_ears))

    @property
    def nbytes(self) -> int:
        """Return the memory of the buffers on the device."""
        return self.inputs.block.nbytes + self.outputs.block.nbytes + self.start.nbytes

    def _function(self, stage: str, *key: str) -> Function:
        method, profile = key
        if stage == "update":
            # Looked up when it runs: without captures, a start makes a new state.
            return lambda: self._updates[method, profile]()
        return lambda: self._begin(method, profile)

    def _begin(self, method: str, profile: str) -> None:
        taps = self.start if method == GIVEN else self._stages.initial_filter(method, self.inputs)
        self._updates[method, profile] = self._stages.begin_updates(profile, self.inputs, taps, self.outputs)

    def _buffer_addresses(self) -> tuple[int, ...]:
        return tuple(item.data_ptr() for item in (self.inputs.block, self.outputs.block, self.start))
