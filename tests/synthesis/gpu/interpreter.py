"""Triton's interpreter in less than half of its time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def quick_interpreter() -> Iterator[None]:
    """Half of the interpreter's time goes into replacing the language's functions, which it does anew whenever one
    function of a kernel calls another. The first call of each function in a launch is enough: what it replaces
    stays until the launch ends. Half of the rest goes into types and shapes, made anew for every value: here those
    of one name are one, by which values of the same shape are known.
    """
    from triton.language import core
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    patch_language: Callable[[object], object] = interpreter._patch_lang
    launch: Callable[..., None] = interpreter.GridExecutor.__call__
    numpys, broadcast = interpreter._get_np_dtype, TritonSemantic.broadcast_impl_value
    begin_block, begin_tensor = core.block_type.__init__, core.tensor.__init__
    scopes: dict[object, object] = {}
    dtypes: dict[str, object] = {}
    blocks: dict[tuple[object, ...], dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}

    def patched_once(function: object) -> object:
        if function not in scopes:
            scopes[function] = patch_language(function)
        return scopes[function]

    def launched(self: object, *arguments: object, **options: object) -> None:
        scopes.clear()
        launch(self, *arguments, **options)

    def numpys_once(dtype: Any) -> object:
        name = dtype.scalar.name
        if name not in dtypes:
            dtypes[name] = numpys(dtype)
        return dtypes[name]

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, *(getattr(each, "value", each) for each in shape)
        if key not in blocks:
            begin_block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])

    def tensor(self: Any, handle: object, type: Any) -> None:
        if type.name not in tensors:
            begin_tensor(self, handle, type)
            tensors[type.name] = {name: vars(self)[name] for name in ("shape", "numel", "dtype")}
        vars(self).update(tensors[type.name], handle=handle, type=type)

    def of_one_shape(self: object, left: Any, right: Any) -> object:
        return (left, right) if left.shape is right.shape else broadcast(self, left, right)

    with (
        patch.object(interpreter, "_patch_lang", patched_once),
        patch.object(interpreter.GridExecutor, "__call__", launched),
        patch.object(interpreter, "_get_np_dtype", numpys_once),
        patch.object(core.block_type, "__init__", block),
        patch.object(core.tensor, "__init__", tensor),
        patch.object(TritonSemantic, "broadcast_impl_value", of_one_shape),
    ):
        yield
