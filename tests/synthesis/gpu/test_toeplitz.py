"""The fused solver against the reference's iterations in double precision, and as machine code for a GPU."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from synthesis.conjugate_gradients import Solution
from synthesis.conventions import DESIGN_N_FFT
from synthesis.fir_wiener import fir_wiener, starting_weight
from synthesis.gauss_newton import FAST, FINE, refine
from synthesis.generator import Generator, GeneratorConfig
from synthesis.path_ratio import floored_log
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Synthesizer
from synthesis.toeplitz import solve_toeplitz
from tests.synthesis.cases import Case, hopeless, random_case, relative_error

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import toeplitz
from tests.synthesis.gpu.every import every
from tests.synthesis.gpu.hopper import compiled


def systems(n_systems: int, range_db: float, n_fft: int = 8192) -> tuple[Tensor, Tensor]:
    """Smooth symbols that span a range of levels, and right-hand sides without any structure, float64."""
    waves = torch.cos(torch.outer(torch.arange(1, 9), torch.linspace(0, torch.pi, n_fft // 2 + 1)).double())
    shape = torch.randn(n_systems, 8, dtype=torch.float64) @ waves
    shape *= range_db / 10 * torch.log(torch.tensor(10.0)) / (shape.amax(-1) - shape.amin(-1))[:, None]
    rhs = torch.randn(n_systems, 2048, dtype=torch.float64)
    return torch.exp(shape), torch.fft.rfft(rhs, n=n_fft)


def solved(symbol: Tensor, matched: Tensor, device: torch.device, n_iterations: int = 4) -> Solution:
    """By the kernels, from float32, back on the host."""
    found = toeplitz.solve(
        symbol.to(device, torch.float32), matched.to(device, torch.complex64), 2048, n_iterations=n_iterations
    )
    assert found.value.dtype == torch.float32
    return Solution(found.value.cpu(), found.residual.cpu(), found.n_iterations.cpu())


@pytest.mark.parametrize("range_db", [20.0, 40.0])
def test_each_iterate_is_the_references(range_db: float, device: torch.device) -> None:
    symbol, matched = systems(1, range_db)
    for n_iterations in (1, 2, 4):
        found = solved(symbol, matched, device, n_iterations)
        expected = solve_toeplitz(symbol, matched, 2048, n_iterations=n_iterations)
        # The symbol's range is the matrix' condition: 100 and 1e4, which multiply float32's 6e-8.
        assert relative_error(found.value, expected.value) < 2e-7 * 10 ** (range_db / 10)
        torch.testing.assert_close(found.residual.double(), expected.residual, rtol=2e-2, atol=1e-6)
        assert found.n_iterations.tolist() == expected.n_iterations.tolist() == [n_iterations]


@pytest.mark.parametrize("level", [1e-4, 1e6])
def test_a_systems_level_leaves_its_solution(level: float, device: torch.device) -> None:
    symbol, matched = systems(1, 30.0)
    found = solved(level * symbol, level * matched, device)
    expected = solve_toeplitz(symbol, matched, 2048, n_iterations=4)
    assert relative_error(found.value, expected.value) < 2e-4


def test_a_finer_grid_is_read_by_torch_and_solved_by_the_kernels(device: torch.device) -> None:
    symbol, matched = systems(1, 30.0, FINE.n_fft)
    expected = solve_toeplitz(symbol, matched, 2048, n_iterations=4)
    assert relative_error(solved(symbol, matched, device).value, expected.value) < 2e-4


def test_what_the_kernels_do_not_solve_the_reference_does(device: torch.device) -> None:
    symbol, matched = (each.to(device) for each in systems(1, 20.0))
    single = symbol.float(), matched.to(torch.complex64)
    for system, n, preconditioned in (
        ((symbol, matched), 2048, True),
        (single, 1024, True),
        (single, 2048, False),
    ):
        found = toeplitz.solve(*system, n, n_iterations=3, preconditioned=preconditioned)
        expected = solve_toeplitz(*system, n, n_iterations=3, preconditioned=preconditioned)
        assert torch.equal(found.value, expected.value)
        assert found.value.dtype == system[0].dtype


def test_items_that_stop_keep_their_value(device: torch.device) -> None:
    """Nothing to solve; an inverse that shows itself not to be positive; and beside them one that goes on."""
    symbol, matched = systems(3, 40.0)
    matched[0] = 0
    symbol[1] = 1 / (1e-7 + (1 - torch.cos(torch.linspace(0, torch.pi, 4097, dtype=torch.float64))) ** 6)
    found = solved(symbol, matched, device)
    single = solve_toeplitz(symbol.float(), matched.to(torch.complex64), 2048, n_iterations=4)
    assert not found.value[0].any()
    assert found.residual[0] == 0
    assert found.n_iterations[[0, 2]].tolist() == single.n_iterations[[0, 2]].tolist() == [0, 4]
    # After how many iterations a matrix so far beyond float32 shows itself is rounding's to say, and so the
    # processor's: none or one on those seen. It stops, in either solver, with what it had.
    stopped_after = int(found.n_iterations[1])
    assert stopped_after < 4
    assert single.n_iterations[1] < 4
    until_then = solved(symbol, matched, device, n_iterations=max(stopped_after, 1))
    assert torch.equal(found.value[1], until_then.value[1])
    assert found.value[1].isfinite().all()
    assert relative_error(found.value[2:], single.value[2:].double()) < 2e-3


def test_a_system_alone_is_the_system_beside_one_that_is_no_number(device: torch.device) -> None:
    symbol, matched = systems(2, 40.0)
    alone = solved(symbol[1:], matched[1:], device)
    symbol[0, 5] = torch.nan
    together = solved(symbol, matched, device)
    assert together.value[0].isnan().all()
    assert torch.equal(together.value[1], alone.value[0])
    assert torch.equal(together.residual[1], alone.residual[0])


def wiener_systems(case: Case) -> tuple[Tensor, Tensor]:
    """Of the finite Wiener filter before a generator corrects its weights, and its own damping: float64."""
    caught = []

    def catch(symbol: Tensor, matched: Tensor, n: int, **options: object) -> Solution:
        caught.append((symbol, matched))
        return solve_toeplitz(symbol, matched, n, n_iterations=1)

    paths = coarse(case)
    log_paths = torch.stack((floored_log(paths.primary.abs()), floored_log(paths.secondary.abs())), dim=1)
    points_hz = torch.linspace(0, 24_000, paths.n_bins, dtype=torch.float64).clamp_min(1.0)
    log_weight, log_penalty = starting_weight(log_paths, points_hz).unbind(1)
    fir_wiener(paths, log_weight, log_penalty, solve=catch)
    return caught[0]


def coarse(case: Case) -> AcousticPaths:
    """Its paths on the grid of 8192 points."""
    stride, paths = DESIGN_N_FFT // FAST.n_fft, case.paths()
    return AcousticPaths(paths.primary[:, ::stride].contiguous(), paths.secondary[:, ::stride].contiguous())


def test_on_measured_ears_the_wiener_filter_is_the_references(measured_case: Case, device: torch.device) -> None:
    # Each takes the interpreter a second.
    symbol, matched = (each[every(7, device)] for each in wiener_systems(measured_case))
    found = solved(symbol, matched, device)
    expected = solve_toeplitz(symbol, matched, 2048, n_iterations=4)
    single = solve_toeplitz(symbol.float(), matched.to(torch.complex64), 2048, n_iterations=4)
    # At most four times what torch's single precision makes of the same systems, whose condition is near 1e6.
    errors, torchs = (
        (each.value - expected.value).norm(dim=-1) / expected.value.norm(dim=-1) for each in (found, single)
    )
    assert len(errors) >= 5
    # Measured: 1.8e-3 at most, torch's 0.9e-3, and the same median, 2e-4.
    assert errors.max() < 4 * torchs.max()
    assert errors.median() < 2 * torchs.median()
    torch.testing.assert_close(found.residual.double(), expected.residual, rtol=1e-2, atol=1e-5)


def test_where_both_paths_lack_a_band_a_solution_keeps_its_digits(device: torch.device) -> None:
    """An update of the generator's own filter: C(u) z is several hundred times z, which travels beside it."""
    case = random_case(n_cases=3, n_fft=DESIGN_N_FFT, seed=11)
    generator = Generator(GeneratorConfig.prime_log())
    synthesizer = Synthesizer(generator, case.psd(), torch.full((2, 31), 0.01)).double().eval()
    paths = hopeless("both without a band", case)
    caught = []

    def catch(symbol: Tensor, matched: Tensor, n: int, **options: object) -> Solution:
        caught.append((symbol.float(), matched.to(torch.complex64)))
        return solve_toeplitz(symbol, matched, n, n_iterations=1)

    with torch.inference_mode():
        refine(paths, synthesizer.initial_filter(paths), case.psd(), n_updates=1, solve=catch)
    symbol, matched = (each[::2] for each in caught[0])
    found = solved(symbol, matched, device)
    expected = solve_toeplitz(symbol.double(), matched.to(torch.complex128), 2048, n_iterations=4)
    # Measured: 3e-3, torch's own single precision 1.5e-3; 4e-1 where the larger of the two drowns the smaller.
    assert relative_error(found.value, expected.value) < 3e-2


def test_they_compile_for_hopper_and_threads_exchange_only_between_the_steps(tmp_path: Path) -> None:
    types = {"n_iterations": "i32", "tolerance": "fp32", "count": "*i32"}
    found = compiled("synthesis.gpu.toeplitz", {"TAPS": 2048, "HALF": 4096}, types, tmp_path)
    assert set(found) == set(toeplitz.N_WARPS)
    for name, each in found.items():
        # Two halves of a complex array, twice in each transform; and of what a loop is entered and left with.
        n_transforms = {"_sequences": 2, "_iterations": 3}.get(name, 1)
        assert 4 * n_transforms <= each["exchanges"] <= 4 * n_transforms + 4 * (name == "_iterations"), name
        assert each["stack"] <= 272, name  # few spills
