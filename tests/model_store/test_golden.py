from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model_store import GOLDEN_TOLERANCE, Checkpoint, GoldenCase, GoldenMismatch
from synthesis.start.features import GeneratorConfig
from synthesis.start.generator import model_parameters
from synthesis.types import Model
from tests.model_store import cases
from training.datasets.noise import read_noise, reference_psd
from training.datasets.pandar import read_pandar
from training.simulated_calibration import simulate_calibration

LAST_BIAS = "head.2.bias"


def test_each_filter_is_held_to_answer(checkpoint: Checkpoint) -> None:
    golden = checkpoint.golden
    golden.compare(golden.taps, golden.refined_taps)
    with pytest.raises(GoldenMismatch, match="in taps") as caught:
        golden.compare(golden.refined_taps, golden.refined_taps)
    assert caught.value.error > 10 * caught.value.tolerance
    with pytest.raises(GoldenMismatch, match="in refined_taps"):
        golden.compare(golden.taps, golden.taps)


@pytest.mark.parametrize("spoil", [lambda taps: taps * np.nan, lambda taps: taps * np.inf, lambda taps: taps[:-1]])
def test_what_is_no_filter_never_passes(checkpoint: Checkpoint, spoil) -> None:  # type: ignore[no-untyped-def]
    golden = checkpoint.golden
    with pytest.raises(GoldenMismatch, match="nan"):
        golden.compare(spoil(golden.taps), golden.refined_taps, tolerance=float("inf"))


def test_changed_weight_or_reference_is_noticed(checkpoint: Checkpoint) -> None:
    parameters = checkpoint.parameters
    # The weight's bias; a factor on both the weight and the penalty would change nothing.
    bias = parameters.weights[LAST_BIAS] + np.float32(0.1)
    changed = replace(parameters, weights={**parameters.weights, LAST_BIAS: bias})
    with pytest.raises(GoldenMismatch, match="in taps"):
        checkpoint.golden.check(Model.on("reference", changed))
    louder = parameters.reference_psd.copy()
    louder[400:2000] *= 1e6
    with pytest.raises(GoldenMismatch, match="in refined_taps"):
        checkpoint.golden.check(Model.on("reference", replace(parameters, reference_psd=louder)))


@pytest.mark.measured
def test_float32_has_room_to_spare_on_measured_ears(measured_data: Path) -> None:
    """The tolerance's reason, on the estimates of an ear: a third of it at most is used (`GOLDEN_TOLERANCE`)."""
    noise = read_noise(measured_data / "noise")
    psd = torch.from_numpy(reference_psd(noise))
    parameters = model_parameters(cases.generator(1, GeneratorConfig.prime_log()), psd, torch.zeros(2, 31))
    estimate = simulate_calibration(read_pandar(measured_data).pairs[5:6], noise)
    model = Model.on("reference", parameters)
    for question in zip(estimate.primary, estimate.secondary, estimate.coherence, strict=True):
        golden = GoldenCase.make(parameters, *(item.numpy() for item in question))
        errors = golden.check(model)
        assert max(errors.taps, errors.refined_taps) < GOLDEN_TOLERANCE / 3
