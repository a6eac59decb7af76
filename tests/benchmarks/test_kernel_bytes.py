"""The formulas for the bytes of kernels against what the kernels load and store in Triton's interpreter."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from benchmarks.trace import TOLERANCE, Counting
from model_store.store import ModelStore
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.gauss_newton import FAST
from synthesis.generator import Generator
from synthesis.paths import AcousticPaths
from synthesis.toeplitz import solve_toeplitz
from tests.synthesis.cases import Case, random_case

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
if torch.cuda.is_available():
    pytest.skip("Triton's interpreter is for machines without a CUDA device", allow_module_level=True)
from triton.runtime import interpreter

from synthesis.gpu import features, fir_wiener, prediction, refinement, toeplitz
from synthesis.gpu import generator as layers
from tests.synthesis.gpu.interpreter import quick_interpreter

Bytes = Callable[[Callable[[], object]], int]
UPDATES = {"profile": FAST, "max_gain_db": 30.0, "solve": solve_toeplitz, "most_updates": 8}


@pytest.fixture(scope="module", autouse=True)
def _in_the_quick_interpreter() -> Iterator[None]:
    with quick_interpreter():
        yield


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Bytes:
    """Bytes that the launches of a function load and store: each number once a launch, and once more where another
    was stored in its place."""
    builder, launch = interpreter.InterpreterBuilder, interpreter.GridExecutor.__call__
    load, store = builder.create_masked_load, builder.create_masked_store
    total = 0
    known: set[int] = set()

    def places(pointers: "interpreter.TensorHandle", mask: "interpreter.TensorHandle") -> set[int]:
        return set(pointers.data[mask.data.astype(bool)].ravel().tolist())

    def loading(self: object, pointers: object, mask: object, *rest: object) -> object:
        nonlocal total
        values = load(self, pointers, mask, *rest)
        new = places(pointers, mask) - known
        known.update(new)
        total += len(new) * values.data.itemsize
        return values

    def storing(self: object, pointers: object, values: object, mask: object, *rest: object) -> object:
        nonlocal total
        written = places(pointers, mask)
        known.difference_update(written)
        total += len(written) * values.data.itemsize
        return store(self, pointers, values, mask, *rest)

    def launching(self: object, *arguments: object, **options: object) -> None:
        known.clear()
        launch(self, *arguments, **options)

    monkeypatch.setattr(builder, "create_masked_load", loading)
    monkeypatch.setattr(builder, "create_masked_store", storing)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", launching)

    def count(function: Callable[[], object]) -> int:
        nonlocal total
        total = 0
        with torch.inference_mode():
            function()
        return total

    return count


@pytest.fixture(params=[1, 2], ids=["one ear", "two ears"])
def case(request: pytest.FixtureRequest) -> Case:
    return random_case(n_cases=request.param, n_fft=DESIGN_N_FFT)


@pytest.fixture
def paths(case: Case) -> AcousticPaths:
    return case.paths(torch.float32)


@pytest.fixture
def generator() -> Generator:
    return ModelStore().load("default").generator


def reckoned(function: Callable[[Counting], object], name: str) -> int:
    """What the formula of that name says."""
    counting = Counting()
    with torch.inference_mode():
        function(counting)
    found: Counter[str] = counting.bytes
    return found[name]


def test_features(launched: Bytes, generator: Generator, paths: AcousticPaths) -> None:
    counted = launched(lambda: features.read(generator, paths))
    formula = reckoned(lambda counting: counting.read(generator, paths), "fused features")
    assert formula == pytest.approx(counted, rel=TOLERANCE)


def test_layers(launched: Bytes, generator: Generator, paths: AcousticPaths) -> None:
    pooled = torch.randn(paths.batch_size, 12, generator.config.n_points)
    own = layers.for_kernels(generator)
    counted = launched(lambda: own(pooled))
    formula = reckoned(lambda counting: counting.corrected(generator)(pooled), "fused layers")
    assert formula == pytest.approx(counted, rel=TOLERANCE)


def test_a_solve(launched: Bytes, paths: AcousticPaths) -> None:
    stride = DESIGN_N_FFT // FAST.n_fft
    symbol, matched = paths.secondary.abs()[:, ::stride] ** 2 + 0.1, paths.primary[:, ::stride]
    counted = launched(lambda: toeplitz.solve(symbol, matched, N_TAPS, n_iterations=4))
    formula = reckoned(lambda counting: counting.fused(symbol, matched, N_TAPS, n_iterations=4), "fused solve")
    assert formula == pytest.approx(counted, rel=TOLERANCE)


def test_a_filter_beside_its_solve(launched: Bytes, generator: Generator, paths: AcousticPaths) -> None:
    given = generator, paths, *torch.randn(2, paths.batch_size, 2, generator.config.n_points), None
    counted = launched(lambda: fir_wiener.realised(*given, solve_toeplitz))
    formula = reckoned(lambda counting: counting.realised(*given, counting.fused), "fused filter")
    assert formula == pytest.approx(counted, rel=TOLERANCE)


def test_the_start_of_updates_and_an_update_beside_its_solve(
    launched: Bytes, paths: AcousticPaths, case: Case
) -> None:
    taps, psd = 0.1 * torch.randn(paths.batch_size, N_TAPS), case.psd(torch.float32)
    psd = psd.repeat(paths.batch_size, 1)
    begun = []
    to_begin = launched(lambda: begun.append(refinement.refining(paths, taps, psd, **UPDATES)))
    (updates,) = begun
    to_update = launched(updates.update)
    formula = reckoned(lambda counting: counting.begin(paths, taps, psd, **UPDATES), "fused updates")
    assert formula == pytest.approx(to_begin, rel=TOLERANCE)
    both = reckoned(lambda counting: counting.begin(paths, taps, psd, **UPDATES).update(), "fused updates")
    assert both - formula == pytest.approx(to_update, rel=TOLERANCE)


@pytest.mark.parametrize("basis", ["model", "coherence"])
def test_a_prediction(launched: Bytes, basis: str, paths: AcousticPaths, case: Case) -> None:
    coherence: Tensor | None = torch.full(paths.primary.shape, 0.9) if basis == "coherence" else None
    psd = case.psd(torch.float32).repeat(paths.batch_size, 1)
    given = paths, torch.randn(paths.batch_size, N_TAPS), torch.full((2, 31), 0.1), coherence, psd
    counted = launched(lambda: prediction.predict(*given))
    formula = reckoned(lambda counting: counting.foreseen(*given), "fused prediction")
    assert formula == pytest.approx(counted, rel=TOLERANCE)
