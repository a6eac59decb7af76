"""On a GPU: every measured ear, number of updates and size of a batch, by the kernels as they are served."""

from copy import deepcopy
from dataclasses import fields

import pytest
import torch

from service.designs import BATCH_SIZES
from synthesis.gauss_newton import MAX_UPDATES
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu import served
from synthesis.gpu.served import obstacle
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Synthesizer
from tests.synthesis.cases import HOPELESS, Case, hopeless_paths

pytestmark = pytest.mark.cuda


def synthesizer_for(case: Case) -> Synthesizer:
    torch.manual_seed(5)
    generator = Generator(GeneratorConfig.prime_log())
    with torch.no_grad():
        generator.head[-1].weight.normal_(std=0.05)
    return Synthesizer(generator, case.psd(), torch.full((2, 31), 0.01)).eval()


@pytest.fixture
def by_kernels(measured_case: Case, device: torch.device) -> Synthesizer:
    if device.type == "cpu":
        pytest.skip("Triton's interpreter takes minutes for it")
    assert obstacle(device) is None
    return served(synthesizer_for(measured_case).float().to(device))


@pytest.mark.parametrize("profile", ["fast", "fine"])
@pytest.mark.parametrize("n_updates", range(MAX_UPDATES + 1))
@torch.inference_mode()
def test_every_update_of_every_ear_ends_where_the_reference_ends(
    n_updates: int, profile: str, by_kernels: Synthesizer, measured_case: Case, device: torch.device
) -> None:
    reference = synthesizer_for(measured_case)
    found = by_kernels.design(measured_case.paths(torch.float32, device), n_updates, profile=profile)
    single = deepcopy(reference).float().design(measured_case.paths(torch.float32), n_updates, profile=profile)
    expected = reference.double().design(measured_case.paths(), n_updates, profile=profile)
    # Which of the last updates ends it may differ: their gains are as small as single precision's rounding.
    for rows in zip(found.objective.cpu(), single.objective, expected.objective, strict=True):
        ours, torchs, exact = (each[each.isfinite()] for each in rows)
        assert (ours.diff() < 0).all()
        assert float(ours[-1]) == pytest.approx(float(exact[-1]), abs=5e-3 + 4 * abs(float(torchs[-1] - exact[-1])))


@torch.inference_mode()
def test_an_ear_is_the_same_in_a_batch_of_any_size(
    by_kernels: Synthesizer, measured_case: Case, device: torch.device
) -> None:
    paths = measured_case.paths(torch.float32, device)
    alone = torch.cat([by_kernels.design(paths[item : item + 1], 1).taps for item in range(paths.batch_size)])
    for size in BATCH_SIZES:
        items = [item % paths.batch_size for item in range(size)]
        batch = AcousticPaths(paths.primary[items], paths.secondary[items])
        assert torch.equal(by_kernels.design(batch, 1).taps, alone[items]), size


@pytest.mark.parametrize("n_updates", range(MAX_UPDATES + 1))
@torch.inference_mode()
def test_hopeless_paths_end_in_numbers_and_updates_lower_the_objective(
    n_updates: int, by_kernels: Synthesizer, device: torch.device
) -> None:
    paths = hopeless_paths().to(torch.float32, device)
    found = by_kernels.design(paths, n_updates)  # which refuses taps that are no numbers
    for kind, objective, applied in zip(HOPELESS, found.objective, found.n_applied, strict=True):
        assert objective[: int(applied) + 1].isfinite().all(), kind
        assert (objective[: int(applied) + 1].diff() < 0).all(), kind
    prediction = by_kernels.predict(paths, found.taps)
    for figure in fields(prediction):
        assert getattr(prediction, figure.name).isfinite().all(), figure.name
