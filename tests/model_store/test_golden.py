from dataclasses import replace

import numpy as np
import pytest

from model_store import Checkpoint, GoldenMismatch
from synthesis.types import Model

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
