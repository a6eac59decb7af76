"""What is read of the paths against the reference, channel by channel."""

import numpy as np
import pytest
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu.features import FeatureReader
from synthesis.cpu.transforms import RealTransform
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.generator import GeneratorConfig
from tests.synthesis.cases import HOPELESS, Case, hopeless
from tests.synthesis.cpu.conftest import Reference


def reader_and_stride(config: GeneratorConfig) -> tuple[FeatureReader, int]:
    grid = LogFrequencyGrid(config.n_fft, config.n_points, config.low_hz, config.high_hz)
    return FeatureReader(grid, RealTransform(config.n_fft)), DESIGN_N_FFT // config.n_fft


@pytest.mark.parametrize("n_fft", [4096, 8192, DESIGN_N_FFT])
def test_every_channel_is_the_references(case: Case, n_fft: int, reference_for: Reference) -> None:
    config = GeneratorConfig.prime_log(n_fft=n_fft)
    expected = reference_for(case, config).double().path_ratio(case.paths())
    reader, stride = reader_and_stride(config)
    paths = case.paths(torch.float32)
    for row, (p, s) in enumerate(zip(paths.primary.numpy(), paths.secondary.numpy(), strict=True)):
        found = reader.read(p[::stride].copy(), s[::stride].copy())
        for name, one in zip(("log_base", "log_paths", "features"), found, strict=True):
            assert one.dtype == np.float32
            # Nepers and channels of order one to ten, from single-precision spectra. Measured: at most 2e-5.
            np.testing.assert_allclose(one, getattr(expected, name)[row], rtol=0, atol=5e-5, err_msg=name)


def test_one_ear_does_not_change_the_next(simulated_case: Case) -> None:
    reader, stride = reader_and_stride(GeneratorConfig.prime_log())
    paths = simulated_case.paths(torch.float32)
    one, other = (
        (paths.primary[row, ::stride].numpy().copy(), paths.secondary[row, ::stride].numpy().copy())
        for row in (0, 1)
    )
    first = reader.read(*one)
    copies = [each.copy() for each in first]
    reader.read(*other)
    for kept, copy, again in zip(first, copies, reader.read(*one), strict=True):
        assert np.array_equal(kept, copy)
        assert np.array_equal(again, copy)


@pytest.mark.parametrize("name", HOPELESS)
def test_dead_bins_and_odd_levels_are_read_as_the_reference_reads_them(
    name: str, simulated_case: Case, reference_for: Reference
) -> None:
    paths = hopeless(name, simulated_case)
    config = GeneratorConfig.prime_log()
    expected = reference_for(simulated_case, config).double().path_ratio(paths)
    reader, stride = reader_and_stride(config)
    single = paths.to(torch.float32)
    for row, (p, s) in enumerate(zip(single.primary.numpy(), single.secondary.numpy(), strict=True)):
        found = reader.read(p[::stride].copy(), s[::stride].copy())
        for field, one in zip(("log_base", "log_paths", "features"), found, strict=True):
            assert np.isfinite(one).all()
            if name == "one tone":  # nothing is left of the primary on this grid, and each type has its own floor
                continue
            # A constant |S| is rounding and nothing else, which standardising divides by its floor of 1e-6.
            tolerance = 0.2 if name == "one late sample" else 2e-4
            np.testing.assert_allclose(one, getattr(expected, field)[row], rtol=0, atol=tolerance, err_msg=field)
