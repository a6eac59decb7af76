"""A design by torch as a whole: its precision, its gradients, hopeless paths, and its refusals."""

import pytest
import torch

from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.errors import InvalidPaths, NonFiniteFilter
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import FAST
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator
from prime_anc.method.start.synthesizer import Synthesizer
from prime_anc.method.updates.tap_objective import TapObjective
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from tests.method.cases import Case, random_case, relative_error

# The coarser of the paper's two grids is a quarter of the work.
KINDS = {"prime": GeneratorConfig.prime(n_fft=8192), "prime-log": GeneratorConfig.prime_log()}


@pytest.fixture(scope="module")
def design_case() -> Case:
    """Random paths on the design grid."""
    return random_case(n_cases=2, n_fft=DESIGN_N_FFT, seed=11)


def synthesizer_for(case: Case, kind: str = "prime-log", *, trained: bool = False) -> Synthesizer:
    """A float64 synthesizer; `trained` moves the last layer, so that corrections are a few dB."""
    torch.manual_seed(5)
    generator = Generator(KINDS[kind])
    if trained:
        with torch.no_grad():
            generator.head[-1].weight.normal_(std=0.05)
    return Synthesizer(generator, case.psd(), torch.full((31,), 0.01, dtype=torch.float64)).double()


def test_float32_follows_float64_on_measured_ears(measured_case: Case) -> None:
    twin = synthesizer_for(measured_case, trained=True)
    single = synthesizer_for(measured_case, trained=True).float()
    paths = measured_case.paths()[::2]
    with torch.inference_mode():
        expected, found = twin.design(paths, 3), single.design(paths.to(torch.float32), 3)
        # Spectra and bases span 60 dB and the normal matrices have a condition of 1e4 to 1e5, which multiply
        # float32's 6e-8. Measured: 7e-4, and 4e-3 where an ear's systems are solved directly.
        assert relative_error(found.taps, expected.taps) < 1e-2
        assert torch.equal(found.n_applied, expected.n_applied)
        torch.testing.assert_close(found.objective.double(), expected.objective, rtol=0, atol=5e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_flow_from_the_objective_to_the_generator(kind: str, design_case: Case) -> None:
    synthesizer, paths = synthesizer_for(design_case, kind, trained=True), design_case.paths()
    objective = TapObjective(paths, synthesizer.reference_psd, FAST, DEFAULT_MAX_GAIN_DB)
    parameters = list(synthesizer.generator.parameters())
    direction = [torch.randn_like(item) for item in parameters]

    def loss() -> torch.Tensor:
        ratio = synthesizer.generator.path_ratio(paths)
        taps = synthesizer.generator.reconstruct(
            paths, ratio, synthesizer.generator(ratio.features), DEFAULT_MAX_GAIN_DB
        )
        response = torch.fft.rfft(taps, n=paths.n_fft)
        return objective.value(objective.band_power(paths.primary - paths.secondary * response), response).mean()

    gradients = torch.autograd.grad(loss(), parameters)
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    step, values = 1e-6, []
    with torch.no_grad():
        for shift in (step, -2 * step):
            for parameter, change in zip(parameters, direction, strict=True):
                parameter.add_(shift * change)
            values.append(loss().item())
    assert abs(slope) > 1e-3
    # Central difference of a J of order 5: 1e-15 / 1e-6 of rounding, and step^2 of curvature.
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=1e-4)


def test_what_is_no_design_is_refused(design_case: Case) -> None:
    synthesizer, paths = synthesizer_for(design_case), design_case.paths()
    with pytest.raises(InvalidPaths, match="primary: it has 4097 bins; give 16385"):
        synthesizer.design(AcousticPaths(paths.primary[:, ::4], paths.secondary[:, ::4]))
    with torch.no_grad():
        synthesizer.generator.head[-1].bias.fill_(torch.nan)
    with pytest.raises(NonFiniteFilter, match="method 'prime' gave NaN or infinite taps"):
        synthesizer.design(paths)
