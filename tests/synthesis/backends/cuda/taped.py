"""CUDA graphs as a machine without a GPU can have them: operators taped once and replayed over the same memory."""

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


def capture_on_tape(function: Callable[[], None], pool: object) -> Callable[[], None]:
    """In the place of `synthesis.backends.cuda.graphs.capture`."""
    function()
    tape = Tape()
    with tape:
        function()
    tape.spoil()
    return tape.replay
