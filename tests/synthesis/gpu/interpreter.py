"""Triton's interpreter, in half the time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def language_patched_once_a_launch() -> Iterator[None]:
    """Half of the interpreter's time goes into replacing the language's functions, which it does anew whenever one
    function of a kernel calls another. The first call of each function in a launch is enough: what it replaces
    stays until the launch ends.
    """
    from triton.runtime import interpreter

    patch_language: Callable[[object], object] = interpreter._patch_lang
    launch: Callable[..., None] = interpreter.GridExecutor.__call__
    scopes: dict[object, object] = {}

    def patched_once(function: object) -> object:
        if function not in scopes:
            scopes[function] = patch_language(function)
        return scopes[function]

    def launched(self: object, *arguments: object, **options: object) -> None:
        scopes.clear()
        launch(self, *arguments, **options)

    with (
        patch.object(interpreter, "_patch_lang", patched_once),
        patch.object(interpreter.GridExecutor, "__call__", launched),
    ):
        yield
