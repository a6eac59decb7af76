"""Where the kernels run: on a GPU where there is one, else in Triton's interpreter; skipped where Triton is not."""

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _runs_here(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
    if "device" in request.fixturenames:
        device: torch.device = request.getfixturevalue("device")
        if device.type == "cpu" and torch.cuda.is_available():
            pytest.skip("Triton's interpreter is for machines without a CUDA device")


@pytest.fixture(scope="module", autouse=True)
def _language_patched_once_a_launch() -> Iterator[None]:
    """Half of the interpreter's time goes into replacing the language's functions, which it does anew whenever one
    function of a kernel calls another. The first call of each function in a launch is enough: what it replaces
    stays until the launch ends.
    """
    try:
        from triton.runtime import interpreter
    except ImportError:
        yield
        return
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patched_once)
        patch.setattr(interpreter.GridExecutor, "__call__", launched)
        yield
