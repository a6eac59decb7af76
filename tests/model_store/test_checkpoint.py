"""Checkpoints are rebuilt bit for bit and held to their golden case; damaged ones are named."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from model_store.checkpoint import Checkpoint
from model_store.errors import GoldenMismatch
from prime_anc.measure.prior import learn_path_prior
from prime_anc.method.conventions import N_BINS
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.types import Model
from tests.model_store import cases

Arrays = dict[str, NDArray[np.generic]]


def written(checkpoint: Checkpoint) -> bytes:
    """The file of a version."""
    return checkpoint.to_bytes("ears", 1, datetime(2025, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize("config", [cases.SMALL, GeneratorConfig.prime(n_fft=4096)], ids=["prime-log", "prime"])
def test_it_is_rebuilt_bit_for_bit(config: GeneratorConfig) -> None:
    made = cases.checkpoint(seed=5, config=config)
    rebuilt = Checkpoint.from_bytes(written(made))
    assert rebuilt.parameters.config == config
    expected, found = cases.arrays(made), cases.arrays(rebuilt)
    assert list(expected) == list(found)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert written(rebuilt) == written(made)


def rewritten(checkpoint: Checkpoint, arrays: Arrays, stated: object = None) -> bytes:
    """The same with other arrays, None being left out, and another manifest: text, or a document."""
    data = written(checkpoint)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    if stated is not None:
        header = {"manifest": stated if isinstance(stated, str) else json.dumps(stated)}
    every = {**safetensors.numpy.load(data), **arrays}
    return safetensors.numpy.save({name: array for name, array in every.items() if array is not None}, header)


def with_prior(checkpoint: Checkpoint) -> Checkpoint:
    """The same with the path prior of three random listeners."""
    prior = learn_path_prior(*(cases.random_paths(n) for n in (400, 100)), ["a", "a", "b", "b", "c", "c"])
    return Checkpoint(checkpoint.manifest, replace(checkpoint.parameters, path_prior=prior), checkpoint.golden)


STEM, NO_NUMBER = "generator.stem.0.weight", np.full((8, 12, 9), np.nan)
NEGATIVE = np.full(N_BINS, -1.0)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("path_prior.secondary.residual_variance", np.zeros(4097), "from 0 to 0"),
        ("path_prior.primary.variance", np.full(4097, -1.0), "from -1 to -1"),
        ("path_prior.primary.directions", np.zeros((65, 4097, 2)), r"primary\.directions: of shape"),
        ("path_prior.primary.directions", np.zeros(()), "shape"),
        ("path_prior.more", np.zeros(1), "unknown or missing"),
        (STEM, NO_NUMBER, rf"{STEM}: from nan to nan"),
        (STEM, NO_NUMBER[..., 1:], r"of shape \[8, 12, 8\]"),
        (STEM, None, rf"unknown or missing: \['{STEM}'\]"),
        ("reference_psd", NEGATIVE, "reference_psd: from -1 to"),
        ("reference_psd", 0 * NEGATIVE, "reference_psd: a total of 0"),
        ("band_uncertainty", np.full(31, -0.5), "band_uncertainty: from -0.5 to"),
    ],
)
def test_wrong_array_is_named(checkpoint: Checkpoint, name: str, value: Arrays | None, found: str) -> None:
    change = {name: None if value is None else np.array(value, np.float32)}
    with pytest.raises(ValueError, match=found):
        Checkpoint.from_bytes(rewritten(with_prior(checkpoint), change))


def test_array_of_float64_is_named(checkpoint: Checkpoint) -> None:
    with pytest.raises(ValueError, match=r"in float64, expected .* in float32"):
        Checkpoint.from_bytes(rewritten(checkpoint, {"reference_psd": NEGATIVE}))


@pytest.mark.parametrize("data", [b"", b"\xff" * 64])
def test_bytes_that_are_no_safetensors_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="safetensors"):
        Checkpoint.from_bytes(data)


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("not json", "Manifest"),
        ([1], "Manifest"),
        ('{"training":' * 200_000, "Manifest"),  # too deep for Python
        ({"training": {"a": json.loads("[" * 300 + "]" * 300)}}, "Manifest"),  # too deep for a client
        ({"seed": int("7" * 4000)}, "Manifest"),
        ({"training": {"rate": [2**64]}}, "Manifest"),
        ({"schema_version": 1}, "Manifest"),
        ({"generator": {"n_channels": 16}}, r"of shape \[8, .*expected \[16"),
        ({"generator": {"n_channels": 10**9}}, "n_channels"),
        ({"generator": {"kind": "transformer"}}, "kind"),
        ({"generator": {"bound_db": "40"}}, "bound_db"),
        ({"generator": {"surprise": 1}}, "surprise"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_odd_manifest_is_rejected(checkpoint: Checkpoint, stated: Any, found: str) -> None:
    if isinstance(stated, dict):
        plain = Checkpoint.from_bytes(written(checkpoint)).manifest.model_dump(mode="json")
        generator = plain["generator"] | stated.get("generator", {})
        stated = {**plain, **stated, "generator": generator}
    with pytest.raises(ValueError, match=found):
        Checkpoint.from_bytes(rewritten(checkpoint, {}, stated))


LAST_BIAS = "head.2.bias"


def test_each_filter_is_held_to_answer(checkpoint: Checkpoint) -> None:
    golden, model = checkpoint.golden, Model.on("cpu", checkpoint.parameters)
    assert golden.check(model).keys() == {"taps", "refined_taps"}
    for name, other in (("taps", golden.refined_taps), ("refined_taps", golden.taps)):
        with pytest.raises(GoldenMismatch, match=f"in {name}"):
            replace(golden, **{name: other}).check(model)
    with pytest.raises(GoldenMismatch, match="error of nan"):
        replace(golden, taps=golden.taps * np.nan).check(model)


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
