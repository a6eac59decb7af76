"""CUDA graphs as a machine without a GPU can have them: operators taped once and replayed over the same memory."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from synthesis.cuda_graph import N_WARM_UP_CALLS, GraphedStage


class Tape(TorchDispatchMode):
    """Operators in the order in which they ran, their arguments and their results, each in its memory.

    What Python decided while they were taped stays decided, and a tensor that Python made anew stays the one that
    it was then, as in a CUDA graph.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable[[], Any], list[torch.Tensor]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        with self:
            decomposed = func.decompose(*args, **options)
        if decomposed is not NotImplemented:
            return decomposed
        result = func(*args, **options)
        given = {_memory(each) for each in tree_leaves((args, options)) if isinstance(each, torch.Tensor)}
        made = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        self._calls.append((lambda: func(*args, **options), [each for each in made if _memory(each) not in given]))
        return result

    def spoil(self) -> None:
        """A GPU computes nothing while it captures: whoever uses what is there before a replay finds rubbish."""
        for _, made in self._calls:
            for each in made:
                each.fill_(torch.nan if each.is_floating_point() or each.is_complex() else 1)

    def replay(self) -> None:
        """Every operator again."""
        with torch.inference_mode():
            for call, made in self._calls:
                found = [each for each in tree_leaves(call()) if isinstance(each, torch.Tensor)]
                for buffer, value in zip(made, found, strict=bool(made)):
                    buffer.copy_(value)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class TapedStage(GraphedStage):
    """A stage that is captured on a machine without a GPU, whatever it is told."""

    def __init__(
        self, function: Callable[..., Any], example_inputs: Sequence[torch.Tensor], **options: Any
    ) -> None:
        super().__init__(function, example_inputs, **options | {"capture": True})

    def _record(self) -> tuple[torch.Tensor, ...]:
        for _ in range(N_WARM_UP_CALLS):
            self._call()
        tape = Tape()
        with tape:
            outputs = tuple(self._call())
        with torch.inference_mode():
            tape.spoil()
        self._graph = tape  # type: ignore[assignment]
        return outputs
