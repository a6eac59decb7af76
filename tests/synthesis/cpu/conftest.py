"""Cases for the processor's stages: every measured ear and simulated ones, with FFTW's transforms and SciPy's."""

from collections.abc import Callable

import pytest
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu import transforms
from synthesis.generator import Generator, GeneratorConfig
from synthesis.synthesizer import Synthesizer
from tests.synthesis.cases import Case, random_case


@pytest.fixture(params=["fftw", "scipy"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each implementation of the transforms in turn."""
    if request.param == "scipy":
        monkeypatch.setattr(transforms, "pyfftw", None)
    elif transforms.pyfftw is None:
        pytest.skip("pyFFTW is not installed")
    return str(request.param)


@pytest.fixture(scope="session")
def simulated_case() -> Case:
    """Four random pairs on the design grid."""
    return random_case(n_cases=4, n_fft=DESIGN_N_FFT, seed=11)


@pytest.fixture(params=["simulated", "measured"])
def case(request: pytest.FixtureRequest) -> Case:
    """The simulated pairs, then every measured ear."""
    found: Case = request.getfixturevalue(f"{request.param}_case")
    return found


Reference = Callable[..., Synthesizer]


@pytest.fixture
def reference_for() -> Reference:
    """The torch synthesizer of a case in single precision, its corrections a few decibels."""

    def build(case: Case, config: GeneratorConfig | None = None) -> Synthesizer:
        torch.manual_seed(5)
        generator = Generator(config or GeneratorConfig.prime_log())
        with torch.no_grad():
            for parameter in generator.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
            generator.head[-1].weight.normal_(std=0.05)
        typical = torch.logspace(-3, -1, 31)  # a value of its own in every band
        return Synthesizer(generator, case.psd(), torch.stack((typical, 3 * typical.flip(0)))).float().eval()

    return build
