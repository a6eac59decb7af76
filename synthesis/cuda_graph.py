"""Record a stage once, replay it for every request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

N_WARM_UP_CALLS = 3
"""Calls before a capture: they create transform plans and workspaces, which must not happen while recording."""


class GraphedStage:
    """A function over static buffers: captured as a CUDA graph, or run eagerly over the same buffers.

    Owns: `inputs`, one buffer for each argument, allocated here; `outputs`, what the function returned for
    them. A call copies its arguments into `inputs`, runs the schedule and returns `outputs`, which stay valid
    only until the next call: copy them out before giving the stage to anyone else. Stages can be chained
    without copies by passing one's outputs as another's example inputs and calling `run`.

    The eager form keeps the contract of the captured one (same buffers, same addresses, fixed shapes), so that
    a machine without a GPU proves the schedule that a GPU replays.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Tensor]],
        example_inputs: Sequence[Tensor],
        *,
        capture: bool,
        share_inputs: bool = False,
    ) -> None:
        """function: tensors in, a sequence of tensors out; fixed shapes and no host synchronisation.

        capture: record a CUDA graph (the inputs must be on a CUDA device). share_inputs: use the example
        inputs themselves as buffers instead of copies of them.
        """
        self._function = function
        self.inputs = tuple(example_inputs) if share_inputs else tuple(each.clone() for each in example_inputs)
        self._graph: torch.cuda.CUDAGraph | None = None
        if capture:
            self.outputs = self._record()
        else:
            self.outputs = tuple(each.clone() for each in self._call())
        self._addresses = self._buffer_addresses()

    def _call(self) -> Sequence[Tensor]:
        with torch.inference_mode():
            return self._function(*self.inputs)

    def _record(self) -> tuple[Tensor, ...]:
        # The caller's own stream, unless that is the default one, in which nothing can be captured. cuBLAS has a
        # workspace for each stream, and torch captures all in one where none is named: graphs of two models would
        # share a workspace and be replayed side by side.
        stream = torch.cuda.current_stream()
        if stream == torch.cuda.default_stream():
            stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(N_WARM_UP_CALLS):
                self._call()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may allocate memory or copy to the host meanwhile; only what this one does can spoil it.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            return tuple(self._call())

    @property
    def memory_pool(self) -> tuple[int, int] | None:
        """Identity of the memory pool that a captured graph keeps; None where nothing was captured."""
        return None if self._graph is None else self._graph.pool()

    def _buffer_addresses(self) -> tuple[int, ...]:
        return tuple(each.data_ptr() for each in (*self.inputs, *self.outputs))

    def run(self) -> tuple[Tensor, ...]:
        """Replay over what the input buffers hold now; returns the static outputs."""
        if __debug__ and self._buffer_addresses() != self._addresses:
            raise AssertionError("a static buffer of a recorded stage has moved")
        if self._graph is not None:
            self._graph.replay()
        else:
            with torch.inference_mode():
                for buffer, value in zip(self.outputs, self._call(), strict=True):
                    buffer.copy_(value)
        return self.outputs

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Copy the arguments into the input buffers, run, return the static outputs."""
        for buffer, argument in zip(self.inputs, arguments, strict=True):
            if buffer.shape != argument.shape:
                raise ValueError(f"found an input of {tuple(argument.shape)}, expected {tuple(buffer.shape)}")
            buffer.copy_(argument, non_blocking=True)
        return self.run()
