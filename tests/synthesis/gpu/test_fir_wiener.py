"""The Wiener filter by the kernels against the reference's in double precision."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator import NEPER_PER_DB, Generator, GeneratorConfig
from synthesis.gpu.served import LAUNCHES_TO_REALISE, N_LAUNCHES
from synthesis.path_ratio import floored_log
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import on_generator_grid, read_paths, realised_wiener
from synthesis.toeplitz import solve_toeplitz
from tests.synthesis.cases import Case, hopeless_paths, random_case, relative_error

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import fir_wiener, refinement, toeplitz
from tests.synthesis.gpu.every import every, hopeless_kinds
from tests.synthesis.gpu.hopper import compiled
from tests.synthesis.gpu.launches import Launches


@pytest.fixture(scope="module")
def generator() -> Generator:
    torch.manual_seed(3)
    return Generator(GeneratorConfig.prime_log()).eval()


def given(generator: Generator, paths: AcousticPaths) -> tuple[Generator, AcousticPaths, Tensor, Tensor]:
    """What a filter is realised from: pooled log paths, and corrections of up to 12 dB without any structure."""
    coarse = on_generator_grid(generator, paths)
    logs = floored_log(torch.stack((coarse.primary, coarse.secondary), dim=1).abs())
    log_paths = logs @ generator.grid.pooling.to(logs)
    return generator, paths, log_paths, 1.4 * torch.randn_like(log_paths).clamp(-1, 1)


def realised(
    case: tuple[Generator, AcousticPaths, Tensor, Tensor], log_ceiling: Tensor | None, device: torch.device
) -> Tensor:
    """By the kernels, from float32, back on the host."""
    generator, paths, log_paths, correction = case
    inputs = paths.to(torch.float32, device), *(each.to(device, torch.float32) for each in (log_paths, correction))
    limit = None if log_ceiling is None else log_ceiling.to(device if log_ceiling.ndim else "cpu", torch.float32)
    taps = fir_wiener.realised(generator.to(device), *inputs, limit, toeplitz.solve)
    assert taps.dtype == torch.float32
    return taps.cpu()


def in_double(generator: Generator) -> Generator:
    """Its grid in double precision."""
    return Generator(generator.config).double()


def test_on_measured_ears_the_filter_is_the_references(
    generator: Generator, measured_case: Case, device: torch.device
) -> None:
    """Each limit for at least two ears: none, one that a few bins reach, one that many do."""
    case = given(generator, measured_case.paths()[every(5, device)])
    n_ears = case[1].batch_size
    limits = torch.tensor([torch.inf, 30.0, 6.0], dtype=torch.float64).repeat(n_ears)[:n_ears]
    limit = limits[:, None] * NEPER_PER_DB
    found = realised(case, limit, device)
    expected = realised_wiener(in_double(generator), *case[1:], limit, solve_toeplitz)
    paths, *rest = case[1:]
    single = realised_wiener(
        generator.cpu(),
        paths.to(torch.float32),
        *(each.float() for each in rest),
        limit.float(),
        solve_toeplitz,
    )
    # At most four times as far off as torch's single precision, for the condition of the systems nears 1e6.
    errors, torchs = ((each - expected).norm(dim=-1) / expected.norm(dim=-1) for each in (found, single))
    assert errors.max() < 4 * torchs.max() + 1e-4
    one = case[0], paths[:1], rest[0][:1], rest[1][:1]
    assert torch.equal(realised(one, None, device), found[:1])


def test_each_ear_has_its_own_limit(generator: Generator, device: torch.device) -> None:
    case = given(generator, random_case(n_cases=2, n_fft=DESIGN_N_FFT).paths())
    limits = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    found = realised(case, limits, device)
    assert relative_error(found, realised_wiener(in_double(generator), *case[1:], limits, solve_toeplitz)) < 2e-3
    one = case[0], case[1][1:], case[2][1:], case[3][1:]
    assert torch.equal(found[1:], realised(one, limits[1:], device))
    assert torch.equal(found[1:], realised(one, torch.tensor(1.0), device))


def test_hopeless_paths_end_in_a_finite_filter(generator: Generator, device: torch.device) -> None:
    names = hopeless_kinds(device)  # a filter takes the interpreter two seconds
    paths, limit = hopeless_paths(names), torch.tensor(3.45, dtype=torch.float64)
    log_paths = read_paths(generator.cpu(), paths.to(torch.float32)).log_paths  # in the precision that is served
    found = realised((generator, paths, log_paths, 1.4 * torch.randn_like(log_paths).clamp(-1, 1)), limit, device)
    assert found.isfinite().all()
    # Nowhere above the ceiling by more than what taps cut off after the bend: measured 1 dB.
    gains = torch.fft.rfft(found.double(), n=8192).abs().amax(-1).log()
    assert (gains < 3.45 + 0.35).all(), dict(zip(names, gains.tolist(), strict=True))


def test_what_the_kernels_do_not_realise_the_reference_does(generator: Generator) -> None:
    case = given(generator, random_case(n_cases=1, n_fft=DESIGN_N_FFT).paths())
    double = in_double(generator), *case[1:]
    assert torch.equal(
        fir_wiener.realised(*double, None, solve_toeplitz), realised_wiener(*double, None, solve_toeplitz)
    )


def test_no_launch_is_uncounted_and_none_reads_a_value(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: Counter[str] = Counter()
    for module in (fir_wiener, refinement, toeplitz):
        for name in module.N_WARPS:
            monkeypatch.setattr(module, name, Launches(name, launches))
    case = given(generator, random_case(n_cases=1, n_fft=DESIGN_N_FFT).paths())
    _, paths, log_paths, correction = case
    inputs = generator.cpu(), paths.to(torch.float32), log_paths.float(), correction.float()
    fir_wiener.realised(*inputs, torch.ones(1, 1), toeplitz.solve)
    assert launches.total() == LAUNCHES_TO_REALISE + N_LAUNCHES
    with FakeTensorMode(allow_non_fake_inputs=True):
        taps = fir_wiener.realised(*inputs, torch.ones(1, 1), toeplitz.solve)
    assert isinstance(taps, FakeTensor)


def test_they_compile_for_hopper(tmp_path: Path) -> None:
    sizes = {"STRIDE": 4, "HALF": 4096, "POINTS": fir_wiener.MOST_POINTS, "BLOCK": 1024, "TAPS": 2048}
    found = compiled("synthesis.gpu.fir_wiener", sizes, {"lower": "*i32", "n_points": "i32"}, tmp_path)
    # Two halves of a complex array, twice in each transform; and where the last bin is stored with the first.
    most = {"_system": 0, "_bend": 8 + 3, "_bent": 4}
    assert set(found) == set(most)
    for name, each in found.items():
        assert each["exchanges"] <= most[name], name
        assert each["stack"] <= 256, name  # few spills, and what sines and cosines ask for
