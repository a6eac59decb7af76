"""Predictions by the kernels against the reference's in double precision, and as machine code for a GPU."""

from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from synthesis.conventions import DESIGN_N_FFT
from synthesis.gpu.served import LAUNCHES_TO_PREDICT
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.noise_reduction import Prediction
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import predicted
from tests.synthesis.cases import Case, hopeless_paths, random_case

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import prediction, refinement
from tests.synthesis.gpu.every import every, hopeless_kinds
from tests.synthesis.gpu.hopper import compiled
from tests.synthesis.gpu.launches import Launches

FIGURES = [each.name for each in fields(Prediction)]
LEARNED = torch.linspace(0.01, 0.2, 62, dtype=torch.float64).reshape(2, 31) * torch.tensor([[1.0], [20.0]])


def found_for(
    paths: AcousticPaths, taps: Tensor, coherence: Tensor | None, psd: Tensor, device: torch.device
) -> Prediction:
    """By the kernels, from float32, back on the host."""
    given = [None if each is None else each.to(device, torch.float32) for each in (taps, LEARNED, coherence, psd)]
    found = prediction.predict(paths.to(torch.float32, device), *given)
    assert {getattr(found, name).dtype for name in FIGURES} == {torch.float32}
    return Prediction(*(getattr(found, name).cpu() for name in FIGURES))


def assert_equal(found: Prediction, expected: Prediction, tolerance_db: float) -> None:
    for name in FIGURES:
        ours, exact = getattr(found, name), getattr(expected, name)
        assert ours.shape == exact.shape, name
        torch.testing.assert_close(
            ours.double(), exact.double(), rtol=1e-4, atol=tolerance_db, msg=name, equal_nan=True
        )


def some_taps(n_cases: int) -> Tensor:
    return torch.randn(n_cases, 2048, dtype=torch.float64) * torch.exp(-torch.arange(2048) / 200.0)


@pytest.mark.parametrize("basis", ["model", "coherence"])
def test_on_measured_ears_figures_are_the_references(basis: str, measured_case: Case, device: torch.device) -> None:
    paths, psd = measured_case.paths()[every(10, device)], measured_case.psd()
    taps = minimum_phase_fir(log_base_magnitude(regularised_ratio(paths), "held_band"))
    coherence = 1 - 0.1 * torch.rand(paths.primary.shape).double() if basis == "coherence" else None
    found, expected = (
        found_for(paths, taps, coherence, psd, device),
        predicted(paths, taps, LEARNED, coherence, psd),
    )
    assert expected.mean_noise_reduction_db.min() > 1
    assert_equal(found, expected, 1e-4)


def test_late_parts_and_references_are_each_ears_own(device: torch.device) -> None:
    """None at all, one that is typical, and one beyond what is plausible."""
    case, taps = random_case(n_cases=1, n_fft=DESIGN_N_FFT), torch.full((3, 2048), 0.01, dtype=torch.float64)
    samples = torch.fft.irfft(case.paths().primary).repeat(3, 1)
    samples[:, 2048:] = torch.tensor([0.0, 1e-3, 3e-2])[:, None] * torch.randn(1, DESIGN_N_FFT - 2048)
    paths = AcousticPaths(torch.fft.rfft(samples), case.paths().secondary.repeat(3, 1))
    psd = case.psd() * torch.tensor([1.0, 2.0, 3.0])[:, None]
    found, expected = found_for(paths, taps, None, psd, device), predicted(paths, taps, LEARNED, None, psd)
    assert (expected.noise_reduction_db.diff(dim=0).abs().amax(-1) > 0.1).all()
    assert_equal(found, expected, 1e-4)
    alone = found_for(paths[1:2], taps[1:2], None, psd[1:2], device)
    assert all(torch.equal(getattr(found, name)[1:2], getattr(alone, name)) for name in FIGURES)


def test_hopeless_paths_have_the_figures_of_torchs_single_precision(device: torch.device) -> None:
    """Of a path beyond every band these are quotients of the type's smallest numbers."""
    names = hopeless_kinds(device)  # a prediction takes the interpreter a second
    paths, psd = hopeless_paths(names), random_case(n_cases=1, n_fft=DESIGN_N_FFT, seed=11).psd()
    taps = 0.1 * some_taps(len(names))
    single = paths.to(torch.float32), taps.float(), LEARNED.float(), None, psd.float()
    found = found_for(paths, taps, None, psd, device)
    assert all(getattr(found, name).isfinite().all() for name in FIGURES)
    assert_equal(found, predicted(*single), 1e-3)


def test_taps_that_are_no_numbers_have_no_figures(device: torch.device) -> None:
    case, taps = random_case(n_cases=1, n_fft=DESIGN_N_FFT), some_taps(1)
    taps[0, 7] = torch.nan
    coherence = torch.full((1, 16_385), 0.9, dtype=torch.float64)
    found = found_for(case.paths(), taps, coherence, case.psd(), device)
    assert all(getattr(found, name).isnan().all() for name in FIGURES)


def test_what_the_kernels_do_not_predict_the_reference_does() -> None:
    case = random_case(n_cases=1, n_fft=DESIGN_N_FFT)
    paths, psd, taps = case.paths(), case.psd(), some_taps(1)
    coarse = AcousticPaths(paths.primary[:, ::2], paths.secondary[:, ::2]).to(torch.float32)
    for given in (
        (paths, taps, LEARNED, None, psd),
        (coarse, taps.float(), LEARNED.float(), None, psd.float()[::2]),
        (paths.to(torch.float32), taps.float()[:, :1024], LEARNED.float(), None, psd.float()),
    ):
        found, expected = prediction.predict(*given), predicted(*given)
        assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in FIGURES)


@pytest.mark.parametrize("basis", ["model", "coherence"])
def test_no_launch_is_uncounted_and_none_reads_a_value(basis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launches: Counter[str] = Counter()
    for module in (prediction, refinement):
        for name in module.N_WARPS:
            monkeypatch.setattr(module, name, Launches(name, launches))
    case = random_case(n_cases=1, n_fft=DESIGN_N_FFT)
    coherence = torch.ones(1, 16_385) if basis == "coherence" else None
    given = case.paths(torch.float32), some_taps(1).float(), LEARNED.float(), coherence, case.psd(torch.float32)
    prediction.predict(*given)
    assert launches.total() == LAUNCHES_TO_PREDICT - (basis == "coherence")
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = prediction.predict(*given)
    assert all(isinstance(getattr(found, name), FakeTensor) for name in FIGURES)


def test_they_compile_for_hopper_and_nothing_spills(tmp_path: Path) -> None:
    sizes = {"TAPS": 2048, "POINTS": 4096, "PARTS": 4, "N_BINS": 16_385, "BLOCK": 4096, "COHERENT": False}
    found = compiled("synthesis.gpu.prediction", sizes, {"edges": "*i32", "psd_stride": "i32"}, tmp_path)
    assert set(found) == set(prediction.N_WARPS)
    for name, each in found.items():
        # Two halves of a complex array, twice in a transform.
        assert each["exchanges"] == (4 if name in ("_early", "_responses") else 0), name
        assert each["stack"] == 0, name
