"""Updates by the kernels against the reference's in double precision, and as machine code for a GPU."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from synthesis.conjugate_gradients import Solution
from synthesis.conventions import DESIGN_N_FFT
from synthesis.gauss_newton import FAST, FINE, PAPER, VERDICTS, Refinement, RefinementProfile, Refining, refine
from synthesis.gpu.served import LAUNCHES_AROUND_A_SOLVE, LAUNCHES_TO_BEGIN
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.toeplitz import solve_toeplitz
from tests.synthesis.cases import HOPELESS, Case, hopeless_paths, random_case, relative_error

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import refinement, toeplitz
from tests.synthesis.gpu.every import every
from tests.synthesis.gpu.hopper import compiled
from tests.synthesis.gpu.launches import Launches


@pytest.fixture(params=[FAST, FINE], ids=lambda each: each.name)
def profile(request: pytest.FixtureRequest) -> RefinementProfile:
    """Those that are served in kernels."""
    found: RefinementProfile = request.param
    return found


def refined(
    paths: AcousticPaths,
    taps: Tensor,
    psd: Tensor,
    device: torch.device,
    n_updates: int,
    profile: RefinementProfile = FAST,
    max_gain_db: Tensor | float | None = 30.0,
    solve: object = toeplitz.solve,
    most_updates: int = 3,
) -> Refinement:
    """By the kernels, from float32, back on the host."""
    updates = refinement.refining(
        paths.to(torch.float32, device),
        taps.to(device, torch.float32),
        psd.to(device, torch.float32),
        profile=profile,
        max_gain_db=max_gain_db.to(device, torch.float32) if isinstance(max_gain_db, Tensor) else max_gain_db,
        solve=solve,
        most_updates=most_updates,
    )
    assert isinstance(updates, refinement.FusedRefining)
    for _ in range(n_updates):
        updates.update()
    found = updates.result()
    return Refinement(*(getattr(found, name).cpu() for name in Refinement.__dataclass_fields__))


def single(paths: AcousticPaths, taps: Tensor, psd: Tensor, **options: object) -> Refinement:
    """By torch, from float32."""
    return refine(paths.to(torch.float32), taps.float(), psd.float(), **options)


def base_taps(paths: AcousticPaths) -> Tensor:
    """The ratio base's filter."""
    return minimum_phase_fir(log_base_magnitude(regularised_ratio(paths), "held_band"))


def one_tap(n_cases: int, size: float = 0.1) -> Tensor:
    """Hardly a filter."""
    taps = torch.zeros(n_cases, 2048, dtype=torch.float64)
    taps[:, 0] = size
    return taps


@pytest.fixture(scope="module")
def case() -> Case:
    return random_case(n_cases=2, n_fft=DESIGN_N_FFT)


def test_on_measured_ears_each_update_is_the_references(
    measured_case: Case, profile: RefinementProfile, device: torch.device
) -> None:
    # An ear's update takes the interpreter two seconds; `fine` differs in the grid alone.
    n_updates = 3 if profile is FAST or device.type == "cuda" else 1
    paths, psd = measured_case.paths()[every(16, device)], measured_case.psd()
    start = base_taps(paths)
    found = refined(paths, start, psd, device, n_updates, profile, most_updates=n_updates)
    expected = refine(paths, start, psd, n_updates=n_updates, profile=profile)
    torchs = single(paths, start, psd, n_updates=n_updates, profile=profile)
    assert torch.equal(found.n_applied, expected.n_applied)
    assert torch.equal(found.stopped, expected.stopped)
    assert torch.equal(found.step_scale.nan_to_num(), expected.step_scale.float().nan_to_num())
    # At most four times what torch's single precision makes of the same updates, each from the one before.
    errors, torchs_errors = (
        (each.taps - expected.taps).norm(dim=-1) / expected.taps.norm(dim=-1) for each in (found, torchs)
    )
    assert errors.max() < 4 * torchs_errors.max()
    assert errors.max() < 1e-2
    # 1e-3 is 0.004 dB in the mean of the bands.
    torch.testing.assert_close(found.objective.double(), expected.objective, rtol=0, atol=1e-3, equal_nan=True)
    torch.testing.assert_close(found.pcg_residual.double(), expected.pcg_residual, rtol=2e-2, atol=1e-4)
    assert (found.objective.diff() < 0).all()


def test_without_an_update_it_is_the_start_and_its_objective(
    case: Case, profile: RefinementProfile, device: torch.device
) -> None:
    paths, psd = case.paths(), case.psd()
    start = 3 * base_taps(paths)  # above the ceiling in places
    found = refined(paths, start, psd, device, 0, profile, 10.0)
    assert torch.equal(found.taps, start.float())
    expected = refine(paths, start, psd, n_updates=0, profile=profile, max_gain_db=10.0)
    assert expected.objective.min() > refine(paths, start, psd, n_updates=0, max_gain_db=None).objective.min() + 1
    # Sums over thousands of bins in float32.
    torch.testing.assert_close(found.objective[:, -1].double(), expected.objective[:, 0], rtol=1e-5, atol=1e-5)
    assert found.objective[:, :-1].isnan().all()
    assert found.step_scale.isnan().all()
    assert found.n_applied.tolist() == found.stopped.tolist() == [0, 0]


UPDATED_TWICE = "primary without a band", "60 dB notch", "one sample"
UPDATED_ONCE = tuple(name for name in HOPELESS[1::4] if name not in UPDATED_TWICE)


@pytest.mark.parametrize(("names", "n_updates"), [(UPDATED_ONCE, 1), (UPDATED_TWICE, 2)])
def test_hopeless_paths_end_where_torchs_single_precision_ends(
    names: tuple[str, ...], n_updates: int, device: torch.device
) -> None:
    paths = hopeless_paths(names)
    psd = random_case(n_cases=1, n_fft=DESIGN_N_FFT, seed=11).psd()
    found = refined(paths, one_tap(len(names)), psd, device, n_updates)
    expected = single(paths, one_tap(len(names)), psd, n_updates=n_updates)
    assert found.taps.isfinite().all()
    for i, name in enumerate(names):
        reached, aim = (each.objective[i][each.objective[i].isfinite()] for each in (found, expected))
        assert (reached.diff() < 0).all(), name
        assert float(reached[-1]) < float(aim[-1]) + 0.02 * max(1.0, abs(float(aim[-1]))), name
        assert float(reached[0]) == pytest.approx(float(aim[0]), rel=1e-4, abs=1e-4), name


def test_a_step_that_breaks_through_the_ceiling_is_halved(case: Case, device: torch.device) -> None:
    """Each length, none, and the reason, for ears that stop beside ears that go on."""
    paths, psd = case.paths(), case.psd()
    paths = AcousticPaths(paths.primary[[0, 1, 0]], paths.secondary[[0, 1, 0]])
    start = torch.tensor([0.5, 0.5, 0.1], dtype=torch.float64)[:, None] * base_taps(paths)
    largest = torch.fft.rfft(start, n=FAST.n_fft).abs().amax(-1, keepdim=True)
    limits_db = 20 * torch.log10(1.001 * largest)
    found = refined(paths, start, psd, device, 1, max_gain_db=limits_db)
    expected = refine(paths, start, psd, n_updates=1, max_gain_db=limits_db)
    assert {0.5, 0.25} <= set(expected.step_scale[:, 0].tolist()), "or this shows too little"
    assert expected.stopped.any()
    assert torch.equal(found.step_scale[:, -1:].nan_to_num(), expected.step_scale.float().nan_to_num())
    assert torch.equal(found.stopped, expected.stopped)
    assert relative_error(found.taps, expected.taps) < 2e-3


def test_who_has_stopped_stays_and_says_why(case: Case, device: torch.device) -> None:
    """Nothing to cancel; a solve that ended in no number, in one sample; and beside them one that goes on."""

    def spoilt(*system: Tensor, **options: object) -> Solution:
        solution = toeplitz.solve(*system, **options)
        solution.value[1, 7] = torch.nan
        return solution

    paths = case.paths()
    paths = AcousticPaths(paths.primary[[0, 0, 0]], paths.secondary[[0, 0, 0]])
    psd = case.psd() * torch.tensor([0.0, 1.0, 1.0])[:, None]
    found = refined(paths, one_tap(3), psd, device, 2, solve=spoilt)
    assert [VERDICTS[int(each)] for each in found.stopped] == ["no_decrease", "no_decrease", "budget"]
    assert found.n_applied.tolist() == [0, 0, 2]
    assert torch.equal(found.taps[:2], one_tap(2).float())
    assert found.objective[:2, -2:].isnan().all()
    assert found.objective[:2, -3].isfinite().all()
    expected = refine(paths[2:], one_tap(1), case.psd(), n_updates=2)
    assert relative_error(found.taps[2:], expected.taps) < 2e-3


def test_an_ear_alone_is_the_ear_beside_one_that_is_no_number(case: Case, device: torch.device) -> None:
    start = one_tap(2)
    start[0] = torch.nan
    together = refined(case.paths(), start, case.psd(), device, 1)
    alone = refined(case.paths()[1:], start[1:], case.psd(), device, 1)
    assert together.taps[0].isnan().all()
    assert torch.equal(together.taps[1:], alone.taps)
    assert torch.equal(together.objective[1:].nan_to_num(), alone.objective.nan_to_num())


def test_a_ceiling_is_one_for_all_one_for_each_or_none(case: Case, device: torch.device) -> None:
    psd, start = case.psd(), 3 * base_taps(case.paths())

    def value(item: slice, max_gain_db: Tensor | float | None) -> Tensor:
        return refined(case.paths()[item], start[item], psd, device, 0, max_gain_db=max_gain_db).objective[:, -1]

    first, second = slice(0, 1), slice(1, 2)
    number, none = value(first, 10.0), value(second, None)
    assert torch.equal(value(first, torch.tensor(10.0)), number)
    assert torch.equal(value(slice(0, 2), torch.tensor([[10.0], [300.0]])), torch.cat((number, none)))
    assert (value(second, 10.0) > none).all()


def test_what_the_kernels_do_not_serve_the_reference_does(case: Case) -> None:
    paths, taps, psd = case.paths(torch.float32), one_tap(2).float(), case.psd(torch.float32)
    coarse = AcousticPaths(paths.primary[:, ::2], paths.secondary[:, ::2])
    options = {"max_gain_db": 30.0, "solve": solve_toeplitz, "most_updates": 1}
    for given in (
        (paths, taps, psd, PAPER),
        (paths, taps, psd, replace(FAST, damping=1e-2)),
        (coarse, taps, psd[::2], FAST),
        (case.paths(), taps.double(), case.psd(), FAST),
    ):
        assert isinstance(refinement.refining(*given[:3], profile=given[3], **options), Refining)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of each kernel, none of which runs."""
    counts: Counter[str] = Counter()
    for module in (refinement, toeplitz):
        for name in module.N_WARPS:
            monkeypatch.setattr(module, name, Launches(name, counts))
    return counts


def test_launches_are_as_many_as_are_counted(case: Case, launches: Counter[str]) -> None:
    paths, taps, psd = case.paths(torch.float32), one_tap(2).float(), case.psd(torch.float32)
    options = {"profile": FAST, "max_gain_db": 30.0, "most_updates": 1}
    updates = refinement.refining(paths, taps, psd, solve=toeplitz.solve, **options)
    assert launches.total() == LAUNCHES_TO_BEGIN
    launches.clear()
    updates.update()
    assert sum(launches[name] for name in refinement.N_WARPS) == LAUNCHES_AROUND_A_SOLVE


def test_no_update_reads_a_value(case: Case, profile: RefinementProfile, launches: Counter[str]) -> None:
    """On tensors that hold none, between kernels that do not run (`tests/service/engine/test_recordable.py`)."""
    paths, taps, psd = case.paths(torch.float32), one_tap(2).float(), case.psd(torch.float32)
    options = {"profile": profile, "solve": toeplitz.solve, "most_updates": 8}
    refinement.refining(paths, taps, psd, max_gain_db=30.0, **options).update()  # what is kept has been made
    with FakeTensorMode(allow_non_fake_inputs=True):
        ceiling = torch.full((2, 1), 30.0)
        updates = refinement.refining(paths, taps + 0 * ceiling, psd, max_gain_db=ceiling, **options)
        updates.update()
        result = updates.result()
    assert all(isinstance(getattr(result, name), FakeTensor) for name in Refinement.__dataclass_fields__)


@pytest.mark.parametrize("n_fft", [FAST.n_fft, FINE.n_fft])
def test_they_compile_for_hopper_and_nothing_spills(n_fft: int, tmp_path: Path) -> None:
    half = n_fft // 2
    sizes = {"N_BINS": half + 1, "BLOCK": half // 4, "STRIDE": DESIGN_N_FFT // n_fft, "TAPS": 2048}
    sizes |= {"POINTS": 4096, "PARTS": half // 4096, "COLUMNS": 16, "BEGIN": False}
    types = {"edges": "*i32", "stopped": "*i64", "n_applied": "*i64", "psd_stride": "i32", "n_columns": "i32"}
    found = compiled("synthesis.gpu.refinement", sizes, types, tmp_path)
    assert set(found) == set(refinement.N_WARPS)
    for name, each in found.items():
        # Two halves of a complex array, twice in a transform.
        assert each["exchanges"] == (4 if name == "_response" else 0), name
        assert each["stack"] == 0, name
