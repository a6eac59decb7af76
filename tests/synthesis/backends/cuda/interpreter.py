"""Triton's interpreter in less than half of its time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

NUMPYS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide}


@contextmanager
def quick_interpreter() -> Iterator[None]:
    """Half of the interpreter's time goes into replacing the language's functions, which it does anew whenever one
    function of a kernel calls another. The first call of each function in a launch is enough: what it replaces
    stays until the launch ends. Half of the rest goes into types and shapes, made anew for every value: here those
    of one name are one, by which values of the same shape are known. Most of what is left are the questions that
    arithmetic asks of its operands' types: of single precision in blocks of one shape, or beside one number, the
    answer is known, as it is of an address beside a number.
    """
    from triton.language import core
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    patch_language: Callable[[object], object] = interpreter._patch_lang
    launch: Callable[..., None] = interpreter.GridExecutor.__call__
    numpys, broadcast = interpreter._get_np_dtype, TritonSemantic.broadcast_impl_value
    sanitise = TritonSemantic.binary_op_sanitize_overflow_impl
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

    def operator(name: str, operation: Any) -> Callable[[Any, Any], object]:
        own, reflected = getattr(core.tensor, name), name.startswith("__r")

        def operate(self: Any, other: Any) -> object:
            data, block, number = None, self.type, getattr(other, "value", other)  # of a constexpr
            if self.dtype.name == "fp32" and type(number) in (int, float):
                data = np.float32(number)
            elif self.dtype.name == "fp32" and isinstance(other, core.tensor) and other.dtype.name == "fp32":
                if other.shape is self.shape or not (other.shape and self.shape):
                    data, block = other.handle.data, self.type if self.shape else other.type
            elif operation is np.add and type(number) is int and self.dtype.is_ptr():
                offset = interpreter.TensorHandle(np.array([number]), core.int64)
                return core.tensor(interpreter.interpreter_builder.create_addptr(self.handle, offset), block)
            if data is None:
                return own(self, other, _semantic=interpreter.interpreter_semantic)
            operands = (data, self.handle.data) if reflected else (self.handle.data, data)
            return core.tensor(interpreter.TensorHandle(operation(*operands), self.dtype), block)

        return operate

    def sanitised(self: object, left: Any, right: Any, binary_op: Any) -> None:
        if left.dtype.name == right.dtype.name == "int32":
            exact = NUMPYS[binary_op.__name__](*(each.handle.data.astype(np.int64) for each in (left, right)))
            if np.array_equal(exact, exact.astype(np.int32)):
                return
        sanitise(self, left, right, binary_op)

    operators: dict[str, Any] = {}
    for name, operation in NUMPYS.items():
        operators |= {each: operator(each, operation) for each in (f"__{name}__", f"__r{name}__")}
    with (
        patch.multiple(core.tensor, **operators),
        patch.object(TritonSemantic, "binary_op_sanitize_overflow_impl", sanitised),
        patch.object(interpreter, "_patch_lang", patched_once),
        patch.object(interpreter.GridExecutor, "__call__", launched),
        patch.object(interpreter, "_get_np_dtype", numpys_once),
        patch.object(core.block_type, "__init__", block),
        patch.object(core.tensor, "__init__", tensor),
        patch.object(TritonSemantic, "broadcast_impl_value", of_one_shape),
    ):
        yield
