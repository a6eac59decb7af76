"""What a generator reads by the kernels against the reference's in double precision."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu.served import LAUNCHES_TO_READ
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import PathRatio, read_paths
from tests.synthesis.cases import Case, hopeless_paths, random_case

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
from synthesis.gpu import features
from tests.synthesis.gpu.every import every, hopeless_kinds
from tests.synthesis.gpu.hopper import compiled
from tests.synthesis.gpu.launches import Launches

FIELDS = ("log_base", "log_paths", "features")


def read(config: GeneratorConfig, paths: AcousticPaths, device: torch.device) -> PathRatio:
    """By the kernels, from float32, back on the host."""
    found = features.read(Generator(config).to(device), paths.to(torch.float32, device))
    assert {getattr(found, name).dtype for name in FIELDS} == {torch.float32}
    return PathRatio(*(getattr(found, name).cpu() for name in FIELDS))


def read_exactly(config: GeneratorConfig, paths: AcousticPaths) -> PathRatio:
    """By the reference, in double precision."""
    return read_paths(Generator(config).double(), paths)


@pytest.mark.parametrize(("n_points", "stride"), [(64, 8), (128, 15)])
def test_on_measured_ears_it_is_the_references(
    n_points: int, stride: int, measured_case: Case, device: torch.device
) -> None:
    # An ear takes the interpreter a second or two: a program to a point.
    config, paths = GeneratorConfig.prime_log(n_points=n_points), measured_case.paths()[every(stride, device)]
    found, expected = read(config, paths, device), read_exactly(config, paths)
    for name in FIELDS:
        # float32's rounding of logarithms near 10. Phases, of magnitudes 40 dB down at most, lose a digit more.
        tolerance = 1e-4 if name == "features" else 1e-5
        torch.testing.assert_close(
            getattr(found, name).double(), getattr(expected, name), rtol=0, atol=tolerance, msg=name
        )


def test_hopeless_paths_are_read_as_the_reference_reads_them(device: torch.device) -> None:
    names = hopeless_kinds(device)  # to read an ear takes the interpreter two seconds
    config, paths = GeneratorConfig.prime_log(), hopeless_paths(names)
    found, expected = read(config, paths, device), read_exactly(config, paths)
    for i, name in enumerate(names):
        for field in FIELDS:
            ours, exact = getattr(found, field)[i].double(), getattr(expected, field)[i]
            assert ours.isfinite().all(), name
            # A logarithm that is the same everywhere is divided by 1e-6, of which float32's rounding is a tenth.
            constant = field == "features" and name in ("one sample", "one late sample")
            difference = (ours - exact).abs() / (1 + exact.abs())
            # Of a path that is silent on the whole grid the logarithm ends where a square leaves single precision.
            assert difference.max() < (0.2 if constant else 1e-3) or name == "one tone", (name, field)


def test_what_the_kernels_do_not_read_the_reference_does() -> None:
    paths = random_case(n_cases=1, n_fft=DESIGN_N_FFT).paths()
    for config, given in (
        (GeneratorConfig.prime_log(), paths),
        (GeneratorConfig.prime_log(n_points=32), paths.to(torch.float32)),
        (GeneratorConfig.prime_log(base="full_band"), paths.to(torch.float32)),
    ):
        generator = Generator(config).to(given.primary.real.dtype)
        found, expected = features.read(generator, given), read_paths(generator, given)
        assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in FIELDS)


def test_no_launch_is_uncounted_and_none_reads_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: Counter[str] = Counter()
    for name in features.N_WARPS:
        monkeypatch.setattr(features, name, Launches(name, launches))
    paths = random_case(n_cases=1, n_fft=DESIGN_N_FFT).paths(torch.float32)
    generator = Generator(GeneratorConfig.prime_log())
    features.read(generator, paths)
    assert launches.total() == LAUNCHES_TO_READ
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = features.read(generator, paths)
    assert all(isinstance(getattr(found, name), FakeTensor) for name in FIELDS)


def test_they_compile_for_hopper(tmp_path: Path) -> None:
    sizes = {"STRIDE": 4, "HALF": 4096, "WIDTH": 1024}
    found = compiled("synthesis.gpu.features", sizes, {"edges": "*i32", "n_points": "i32"}, tmp_path)
    assert set(found) == set(features.N_WARPS)
    # Two halves of a complex array, twice in each transform; and where the last bin is stored with the first.
    assert found["_spectra"]["exchanges"] <= 8 + 3
    assert found["_pool"]["exchanges"] == 0
    assert all(each["stack"] <= 256 for each in found.values())  # few spills, and what sines and cosines ask for
