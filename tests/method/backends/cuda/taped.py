"""CUDA graphs without a GPU: operators recorded once and replayed over the same memory."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """Operators in the order in which they ran, their arguments and their results, each in its memory.

    What Python decided while they were taped stays decided, and a tensor that Python made anew stays the one that
    it was then, as in a CUDA graph.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable[[], Any], list[torch.Tensor]]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would be imported to be skipped, in ten seconds

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        with self:
            decomposed = func.decompose(*args, **options)
        if decomposed is not NotImplemented:
            return decomposed
        result = func(*args, **options)
        given = {
            _memory(tree_leave)
            for tree_leave in tree_leaves((args, options))
            if isinstance(tree_leave, torch.Tensor)
        }
        made = [tree_leave for tree_leave in tree_leaves(result) if isinstance(tree_leave, torch.Tensor)]
        self._calls.append((lambda: func(*args, **options), [item for item in made if _memory(item) not in given]))
        return result

    def spoil(self) -> None:
        """Fill results with rubbish, since a GPU computes nothing while it captures."""
        for _, made in self._calls:
            for item in made:
                item.fill_(torch.nan if item.is_floating_point() or item.is_complex() else 1)

    def replay(self) -> None:
        """Run every operator again."""
        with torch.inference_mode():
            for call, made in self._calls:
                found = [tree_leave for tree_leave in tree_leaves(call()) if isinstance(tree_leave, torch.Tensor)]
                for buffer, value in zip(made, found, strict=bool(made)):
                    buffer.copy_(value)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def capture_on_tape(function: Callable[[], None], pool: object) -> Callable[[], None]:
    """Replacement of `prime_anc.method.backends.cuda.graphs.capture`."""
    function()
    tape = Tape()
    with tape:
        function()
    tape.spoil()
    return tape.replay
