"""Triton's kernels against torch's operators: a few ears in the interpreter, every measured ear on a GPU."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from synthesis.backends.base import Design, DesignInput, DesignOptions
from synthesis.backends.cuda import CudaBackend, kernel_check
from synthesis.backends.cuda.buffers import BatchInputs, BatchOutputs
from synthesis.backends.cuda.kernel_check import check, example_parameters, unsupported_reason
from synthesis.backends.cuda.stages import Stages
from synthesis.backends.reference import ReferenceBackend
from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator import Generator
from synthesis.generator_config import GeneratorConfig
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.profiles import VERDICTS
from tests.synthesis.cases import HOPELESS, Case, hopeless_paths, random_case, relative_error

triton = pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
import triton.language as tl  # noqa: E402

from synthesis.backends.cuda.kernels.fft import cos_sin  # noqa: E402
from synthesis.backends.cuda.kernels.generator import GeneratorKernel, is_supported  # noqa: E402

PRIME_LOG = GeneratorConfig.prime_log()


def test_filters_and_updates_in_each_profile_are_torchs(kernel_device: torch.device) -> None:
    assert check(kernel_device, PRIME_LOG) is None


def test_a_difference_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter((torch.full((2048,), 1.01), torch.ones(2048)))
    monkeypatch.setattr(kernel_check, "_design", lambda stages: {"filter": next(values)})
    assert "filter: relative difference from torch operators 1.0e-02" in str(
        check(torch.device("cpu"), GeneratorConfig.prime(4096))
    )


def test_a_check_that_fails_in_its_process_gives_the_reason() -> None:
    unsupported_reason.cache_clear()
    if torch.cuda.is_available():
        assert unsupported_reason(torch.device("cuda", 0), PRIME_LOG) is None
    else:
        assert re.search("CUDA|NVIDIA driver", str(unsupported_reason(torch.device("cuda", 0), PRIME_LOG)))


@triton.jit
def cosines_and_sines(angles, found, SIZE: tl.constexpr):
    """One program."""
    place = tl.arange(0, SIZE)
    re, im = cos_sin(tl.load(angles + place))
    tl.store(found + place, re)
    tl.store(found + SIZE + place, im)


def test_cosines_and_sines(kernel_device: torch.device) -> None:
    angles = torch.cat((torch.linspace(-20, 20, 1000), torch.linspace(-1e4, 1e4, 24))).to(kernel_device)
    found = torch.empty(2, 1024, device=kernel_device)
    cosines_and_sines[(1,)](angles, found, SIZE=1024)
    exact = torch.stack((angles.double().cos(), angles.double().sin()))
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    "layout",
    [
        {"n_points": 100, "n_channels": 40},  # rows that are half empty, five channels a group
        {"n_points": 128, "n_channels": 12, "n_groups": 6, "dilations": (1, 200)},  # two groups that are none
    ],
)
@torch.inference_mode()
def test_a_generator_of_another_layout(layout: dict[str, Any], kernel_device: torch.device) -> None:
    config = GeneratorConfig.prime_log(**layout)
    assert is_supported(config)
    generator = Generator(config).eval()
    for parameter in generator.parameters():
        parameter += 0.02 * torch.randn_like(parameter)
    last = generator.head[-1]
    assert isinstance(last, nn.Conv1d)
    last.weight.normal_(std=0.3)
    features = torch.randn(1, 12, config.n_points)
    found = GeneratorKernel(generator.to(kernel_device))(features.to(kernel_device)).cpu()
    # Nepers: sums of up to 360 products in each layer. Measured: 5e-6, as torch's own single precision.
    torch.testing.assert_close(found.double(), generator.cpu().double()(features.double()), rtol=0, atol=3e-5)


@pytest.mark.parametrize(
    "config",
    [
        GeneratorConfig.prime(),
        GeneratorConfig.prime_log(n_points=129),
        GeneratorConfig.prime_log(n_channels=72),
        GeneratorConfig.prime_log(head_norm=True),
        GeneratorConfig.prime_log(base="full_band"),
        GeneratorConfig.prime_log(realisation="minimum_phase"),
    ],
    ids=lambda each: f"{each.kind}-{each.n_points}-{each.n_channels}",
)
def test_what_the_kernels_are_not_written_for(config: GeneratorConfig) -> None:
    assert not is_supported(config)


def begin(
    case_rows: tuple[torch.Tensor, torch.Tensor], psd: torch.Tensor, max_gain_db: list[float], device: torch.device
) -> tuple[Stages, Stages, BatchInputs, BatchOutputs]:
    """Kernels on the device, torch's operators beside them, and buffers that hold the ears."""
    parameters = replace(example_parameters(PRIME_LOG), reference_psd=psd[-1].float().numpy())
    by_kernels, by_torch = (Stages(parameters, device, kernels=each) for each in (True, False))
    inputs = BatchInputs(len(max_gain_db), by_kernels.reference_psd)
    inputs.primary.copy_(case_rows[0])
    inputs.secondary.copy_(case_rows[1])
    inputs.reference_psd.copy_(psd)
    inputs.max_gain_db.copy_(torch.tensor(max_gain_db)[:, None])
    return by_kernels, by_torch, inputs, BatchOutputs(len(max_gain_db), device)


@torch.inference_mode()
def test_verdicts_and_step_lengths_are_torchs(kernel_device: torch.device) -> None:
    """Nothing to cancel; a ceiling that a whole step breaks through; a filter of NaN; and one that goes on."""
    case = random_case(n_cases=3, n_fft=DESIGN_N_FFT)
    paths = case.paths(torch.float32)[[1, 1, 1, 1]]
    rows = paths.primary, paths.secondary
    psd = case.psd(torch.float32) * torch.tensor([0.0, 1.0, 1.0, 1.0])[:, None]
    start = 0.5 * minimum_phase_fir(log_base_magnitude(regularised_ratio(paths), "held_band"))
    limit = 20 * torch.log10(1.001 * torch.fft.rfft(start[1], n=8192).abs().max())
    start[0], start[2] = 0, torch.nan
    start[0, 0] = 0.1  # hardly a filter, which no ceiling touches
    by_kernels, by_torch, inputs, outputs = begin(rows, psd, [30.0, float(limit), 30.0, 30.0], kernel_device)
    found, expected = [], []
    for stages, answers in ((by_kernels, found), (by_torch, expected)):
        stages.begin_updates("fast", inputs, start.to(kernel_device), outputs)()
        answers += [
            each.cpu().clone() for each in (outputs.taps, outputs.history, outputs.n_applied, outputs.stopped)
        ]
    taps, history, n_applied, stopped = found
    assert [VERDICTS[int(each)] for each in stopped] == ["no_decrease", "budget", "no_decrease", "budget"]
    assert n_applied.tolist() == [0, 1, 0, 1]
    assert 0 < float(history[1, 1, -1]) < 1
    assert torch.equal(taps[0], start[0])
    assert taps[2].isnan().all()
    going = [1, 3]
    assert relative_error(taps[going], expected[0][going].double()) < 2e-3
    torch.testing.assert_close(history[going], expected[1][going], rtol=1e-2, atol=1e-3, equal_nan=True)
    assert torch.equal(stopped, expected[3])


@torch.inference_mode()
def test_hopeless_paths_end_in_numbers(kernel_device: torch.device) -> None:
    """Silent bands, and levels whose squares leave single precision: J falls as far as in torch.

    But for a tenth: where both are silent in a band, 1e-6 more or less of the first filter moves J by 0.1 nepers.
    """
    names = HOPELESS if kernel_device.type == "cuda" else ("both without a band", "both a millionth")
    paths = hopeless_paths(names)
    psd = random_case(n_cases=1, n_fft=DESIGN_N_FFT).psd().expand(len(names), -1)
    rows = paths.primary, paths.secondary
    by_kernels, by_torch, inputs, outputs = begin(rows, psd, [30.0] * len(names), kernel_device)
    values = []
    taps = by_kernels.initial_filter("prime", inputs)
    for stages in (by_kernels, by_torch):
        stages.begin_updates("fast", inputs, taps, outputs)()
        assert outputs.taps.isfinite().all()
        values.append(outputs.history[:, 0].cpu().clone())
    for name, found, expected in zip(names, *values, strict=True):
        reached, aim = found[found.isfinite()], expected[expected.isfinite()]
        assert (reached.diff() < 0).all(), name
        assert float(reached[-1]) < float(aim[-1]) + 0.1 * max(1.0, abs(float(aim[-1]))), name


def inputs_of(case: Case, items: list[int]) -> list[DesignInput]:
    return [
        DesignInput(
            case.primary[item].astype(np.complex64),
            case.secondary[item].astype(np.complex64),
            reference_psd=case.reference_psd.astype(np.float32),
        )
        for item in items
    ]


def test_measured_ears_end_where_the_method_ends(measured_case: Case, kernel_device: torch.device) -> None:
    """J in double precision decides: rounding may choose another of the last, smallest updates."""
    on_gpu, parameters = kernel_device.type == "cuda", example_parameters(PRIME_LOG)
    items = list(range(len(measured_case.primary))) if on_gpu else [3]
    inputs = inputs_of(measured_case, items)
    backend, exact = CudaBackend(parameters, kernel_device), ReferenceBackend(parameters, torch.float64)
    assert backend.has_kernels
    for n_updates in (0, 1, 3, 8) if on_gpu else (1,):
        options = DesignOptions("prime", n_updates)
        for found, expected in zip(backend.design(inputs, options), exact.design(inputs, options), strict=True):
            assert isinstance(found, Design)
            assert isinstance(expected, Design)
            assert (np.diff(found.refinement.objective) < 0).all()
            assert found.refinement.objective[-1] == pytest.approx(expected.refinement.objective[-1], abs=0.02)
            assert found.prediction.mean_noise_reduction_db == pytest.approx(
                expected.prediction.mean_noise_reduction_db, abs=0.05
            )


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_ear_is_the_same_in_a_batch_of_any_size() -> None:
    inputs = inputs_of(random_case(n_cases=32, n_fft=DESIGN_N_FFT), list(range(32)))
    backend, options = CudaBackend(example_parameters(PRIME_LOG)), DesignOptions("prime", 1)
    alone = [backend.design([each], options)[0] for each in inputs]
    for size in (2, 8, 9, 32):
        for own, beside in zip(alone, backend.design(inputs[:size], options), strict=False):
            assert isinstance(own, Design)
            assert isinstance(beside, Design)
            np.testing.assert_array_equal(own.taps, beside.taps)
