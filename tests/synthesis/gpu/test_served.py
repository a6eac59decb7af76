"""Who solves the systems of a served model, and what is said where the kernels cannot."""

import logging
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from synthesis.conjugate_gradients import Solution
from synthesis.conventions import DESIGN_N_FFT
from synthesis.gauss_newton import Refining
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu import served
from synthesis.gpu.served import N_LAUNCHES, obstacle
from synthesis.noise_reduction import Prediction
from synthesis.synthesizer import PathRatio, Synthesizer, predicted, read_paths, realised_wiener
from synthesis.toeplitz import solve_toeplitz
from tests.synthesis.cases import random_case, relative_error

REFERENCE = solve_toeplitz, read_paths, realised_wiener, Refining, predicted


def parts(own: Synthesizer) -> tuple[object, ...]:
    """In the order of REFERENCE."""
    return own.solve, own.read, own.realise, own.begin_updates, own.foresee


def kernels() -> tuple[object, ...]:
    """In the order of REFERENCE."""
    from synthesis.gpu import features, fir_wiener, prediction, refinement, toeplitz

    return toeplitz.solve, features.read, fir_wiener.realised, refinement.refining, prediction.predict


@pytest.fixture
def synthesizer(device: torch.device) -> Synthesizer:
    case = random_case(n_cases=1, n_fft=DESIGN_N_FFT)
    torch.manual_seed(5)
    generator = Generator(GeneratorConfig.prime_log())
    return Synthesizer(generator, case.psd(), torch.full((2, 31), 0.01)).float().eval().to(device)


@pytest.fixture(autouse=True)
def _decided_anew() -> None:
    obstacle.cache_clear()


def test_on_a_processor_nothing_changes() -> None:
    case = random_case(n_cases=1, n_fft=DESIGN_N_FFT)
    synthesizer = Synthesizer(Generator(GeneratorConfig.prime_log()), case.psd(), torch.zeros(2, 31)).float()
    assert served(synthesizer) is synthesizer
    assert parts(synthesizer) == REFERENCE


def test_the_kernels_stand_the_check_and_serve(
    synthesizer: Synthesizer, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from synthesis.gpu.generator import FusedGenerator

    monkeypatch.setattr(sys.modules["synthesis.gpu.served"], "FUSED_ON", device.type)
    own = served(deepcopy(synthesizer))
    assert obstacle(device, own.generator.config) is None
    assert parts(own) == kernels()
    assert isinstance(own.generator, FusedGenerator)
    paths = random_case(n_cases=1, n_fft=DESIGN_N_FFT).paths(torch.float32, device)
    with torch.inference_mode():
        found, expected = own.design(paths, 1), synthesizer.design(paths, 1)
    assert relative_error(found.taps, expected.taps.double()) < 1e-3


@pytest.mark.parametrize("which", ["solve", "read", "realised", "refining", "predict", "for_kernels"])
def test_kernels_that_give_something_else_are_not_used(
    which: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from synthesis.gpu import features, fir_wiener, generator, prediction, refinement, toeplitz

    def solve(*system: object, **options: object) -> Solution:
        found = solve_toeplitz(*system, **options)
        found.value[:, 3] += 0.1
        return found

    def read(*given: object) -> PathRatio:
        found = read_paths(*given)
        return replace(found, features=found.features.roll(1, 1))

    def realised(*given: object) -> Tensor:
        return 1.01 * realised_wiener(*given)

    class Off(Refining):
        def update(self) -> None:
            super().update()
            self._value += 0.01
            self._history += 0.01

    def predict(*given: object) -> Prediction:
        found = predicted(*given)
        return replace(found, noise_reduction_db=found.noise_reduction_db + 0.1)

    def for_kernels(given: Generator) -> Generator:
        own = deepcopy(given)
        with torch.no_grad():
            own.head[-1].weight *= 1.01
        return own

    own = {
        "solve": (toeplitz, solve_toeplitz, solve),
        "read": (features, read_paths, read),
        "realised": (fir_wiener, realised_wiener, realised),
        "refining": (refinement, Refining, Off),
        "predict": (prediction, predicted, predict),
        "for_kernels": (generator, deepcopy, for_kernels),
    }
    for name, (module, right, _) in own.items():
        monkeypatch.setattr(module, name, right)
    assert obstacle(device) is None
    obstacle.cache_clear()
    module, _, wrong = own[which]
    monkeypatch.setattr(module, which, wrong)
    assert "from torch's" in str(obstacle(device))


def test_kernels_that_do_not_compile_are_not_used(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from synthesis.gpu import toeplitz

    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("ptxas: no such instruction")

    monkeypatch.setattr(toeplitz, "solve", broken)
    assert obstacle(device) == "RuntimeError: ptxas: no such instruction"


def test_without_triton_the_warning_names_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from synthesis.gpu.served import obstacle; print(obstacle(torch.device('cuda')))"
    )
    path = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=path)
    assert "Triton cannot be imported" in done.stdout
    assert "prime-anc[gpu]" in done.stdout


def test_a_warning_says_why_torch_solves(
    synthesizer: Synthesizer,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = sys.modules["synthesis.gpu.served"]
    monkeypatch.setattr(module, "obstacle", lambda device, config: "no compiler")
    monkeypatch.setattr(module, "FUSED_ON", device.type)
    with caplog.at_level(logging.WARNING):
        own = served(synthesizer)
    assert parts(own) == REFERENCE
    assert type(own.generator) is Generator
    assert "no compiler" in caplog.text


def test_launches_are_as_many_as_are_counted() -> None:
    from synthesis.gpu import toeplitz

    assert len(toeplitz.N_WARPS) == N_LAUNCHES
