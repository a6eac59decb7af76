from pathlib import Path

import pytest
import torch

from model_store import GOLDEN_TOLERANCE, Checkpoint, GoldenCase, GoldenMismatch
from synthesis.errors import InvalidPaths
from synthesis.generator import Generator, GeneratorConfig
from synthesis.synthesizer import Synthesizer
from tests.model_store import cases
from training.calibration import simulate_calibration
from training.datasets.noise import read_noise, reference_psd
from training.datasets.pandar import read_pandar


def test_the_float64_twin_meets_its_own_answer(checkpoint: Checkpoint) -> None:
    """Only the rounding of the stored taps to float32 is left."""
    errors = checkpoint.golden.check(checkpoint.synthesizer(torch.float64))
    assert max(errors.taps, errors.refined_taps) < torch.finfo(torch.float32).eps


def test_making_it_changes_nothing(checkpoint: Checkpoint) -> None:
    generator, psd, uncertainty = cases.generator(3), cases.reference_psd(), torch.full((2, 31), 0.01)
    before = [each.clone() for each in generator.state_dict().values()]
    made = GoldenCase.make(generator, psd, uncertainty, *cases.ear(5))
    assert all(torch.equal(*pair) for pair in zip(before, generator.state_dict().values(), strict=True))
    assert generator.stem[0].weight.dtype == psd.dtype == torch.float32
    again = GoldenCase.make(generator, psd, uncertainty, *(each.double() for each in cases.ear(5)))
    assert all(torch.equal(made.tensors()[name], again.tensors()[name]) for name in made.tensors())


def test_each_filter_is_held_to_its_own_answer(checkpoint: Checkpoint) -> None:
    golden = checkpoint.golden
    golden.compare(golden.taps[None], golden.refined_taps.double())
    with pytest.raises(GoldenMismatch, match="in taps") as caught:
        golden.compare(golden.refined_taps, golden.refined_taps)
    assert caught.value.error > 10 * caught.value.tolerance
    with pytest.raises(GoldenMismatch, match="in refined_taps"):
        golden.compare(golden.taps, golden.taps)


def test_the_error_is_relative_and_the_tolerance_counts(checkpoint: Checkpoint) -> None:
    golden = checkpoint.golden
    louder = golden.taps * 1.02
    assert golden.errors(louder, golden.refined_taps).taps == pytest.approx(0.02, rel=1e-4)
    with pytest.raises(GoldenMismatch):
        golden.compare(louder, golden.refined_taps)
    golden.compare(louder, golden.refined_taps, tolerance=0.03)


@pytest.mark.parametrize("spoil", [lambda t: t * float("nan"), lambda t: t / 0, lambda t: t[:-1]])
def test_what_is_no_filter_never_passes(checkpoint: Checkpoint, spoil) -> None:  # type: ignore[no-untyped-def]
    golden = checkpoint.golden
    with pytest.raises(GoldenMismatch, match="nan"):
        golden.compare(spoil(golden.taps), golden.refined_taps, tolerance=float("inf"))


def test_a_changed_weight_or_reference_is_noticed(checkpoint: Checkpoint) -> None:
    synthesizer = checkpoint.synthesizer()
    synthesizer.generator.head[-1].bias.data[0] += (
        0.1  # the weight's: a factor on weight and penalty changes nothing
    )
    with pytest.raises(GoldenMismatch, match="in taps"):
        checkpoint.golden.check(synthesizer)
    synthesizer = checkpoint.synthesizer()
    synthesizer.reference_psd[400:2000] *= 100
    with pytest.raises(GoldenMismatch, match="in refined_taps"):
        checkpoint.golden.check(synthesizer)


def test_the_question_must_be_a_question(checkpoint: Checkpoint) -> None:
    primary, secondary, coherence = cases.ear(5)

    def make(primary: torch.Tensor, secondary: torch.Tensor) -> GoldenCase:
        return GoldenCase.make(
            checkpoint.generator,
            checkpoint.reference_psd,
            checkpoint.band_uncertainty,
            primary,
            secondary,
            coherence,
        )

    with pytest.raises(ValueError, match=r"golden primary: found shape \(8193,\)"):
        make(torch.ones(8193), secondary)
    with pytest.raises(ValueError, match=r"golden secondary: found shape \(1, 512\)"):
        make(primary, secondary[None])
    with pytest.raises(InvalidPaths, match="all-zero"):
        make(primary, torch.zeros(8))


def test_it_is_asked_on_the_synthesizers_device(checkpoint: Checkpoint, device: torch.device) -> None:
    errors = checkpoint.golden.check(checkpoint.synthesizer(torch.float32, device))
    assert max(errors.taps, errors.refined_taps) < GOLDEN_TOLERANCE


@pytest.mark.measured
@pytest.mark.parametrize("kind", ["prime-log", "prime"])
def test_float32_has_room_to_spare_on_measured_ears(measured_data: Path, kind: str) -> None:
    """The tolerance's reason, on estimates of two ears: a third of it at most is used (`GOLDEN_TOLERANCE`)."""
    config = GeneratorConfig.prime() if kind == "prime" else GeneratorConfig.prime_log()
    generator: Generator = cases.generator(1, config)
    noise = read_noise(measured_data / "noise")
    psd = torch.from_numpy(reference_psd(noise)).float()
    pairs = read_pandar(measured_data).pairs[5:7]
    estimate = simulate_calibration(pairs, noise)
    synthesizer = Synthesizer(generator, psd, torch.zeros(31))
    for primary, secondary, coherence in zip(estimate.primary, estimate.secondary, estimate.coherence, strict=True):
        golden = GoldenCase.make(generator, psd, torch.zeros(31), primary, secondary, coherence)
        errors = golden.check(synthesizer)
        assert max(errors.taps, errors.refined_taps) < GOLDEN_TOLERANCE / 3
