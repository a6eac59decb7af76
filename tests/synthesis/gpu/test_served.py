"""Who solves the systems of a served model, and what is said where the kernels cannot."""

import logging
import subprocess
import sys

import pytest
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu import served
from synthesis.gpu.served import N_LAUNCHES, obstacle
from synthesis.synthesizer import Synthesizer
from synthesis.toeplitz import solve_toeplitz
from tests.synthesis.cases import random_case, relative_error


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
    assert synthesizer.solve is solve_toeplitz


def test_the_kernels_stand_the_check_that_decides(device: torch.device) -> None:
    assert obstacle(device) is None


def test_a_design_with_the_kernels_is_the_references(synthesizer: Synthesizer, device: torch.device) -> None:
    from synthesis.gpu import toeplitz

    paths = random_case(n_cases=1, n_fft=DESIGN_N_FFT).paths(torch.float32, device)
    with torch.inference_mode():
        expected = synthesizer.design(paths, 1)
        synthesizer.solve = toeplitz.solve
        found = synthesizer.design(paths, 1)
    assert relative_error(found.taps, expected.taps.double()) < 1e-3


@pytest.mark.cuda
def test_on_a_gpu_the_kernels_solve(device: torch.device, synthesizer: Synthesizer) -> None:
    from synthesis.gpu import toeplitz

    if device.type == "cpu":
        pytest.skip("no CUDA device")
    assert served(synthesizer).solve is toeplitz.solve


def test_kernels_that_solve_wrongly_are_not_used(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from synthesis.gpu import toeplitz

    def off(*args: object, **options: object) -> object:
        found = solve_toeplitz(*args, **options)
        found.value[:, 3] += 0.1
        return found

    monkeypatch.setattr(toeplitz, "solve", off)
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
    monkeypatch.setattr(module, "obstacle", lambda device: "no compiler")
    monkeypatch.setattr(module, "FUSED_ON", device.type)
    with caplog.at_level(logging.WARNING):
        assert served(synthesizer).solve is solve_toeplitz
    assert "no compiler" in caplog.text


def test_launches_are_as_many_as_are_counted(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from synthesis.gpu import toeplitz

    assert len(toeplitz.N_WARPS) == N_LAUNCHES
