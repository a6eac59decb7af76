"""Checkpoints are rebuilt bit for bit and held to their golden case; damaged ones are named."""

import json
from collections.abc import Callable
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
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.types import Model
from tests.model_store import cases

Arrays = dict[str, NDArray[np.generic]]


def written(checkpoint: Checkpoint) -> bytes:
    """The file of a version."""
    return checkpoint.to_bytes("ears", 1, datetime(2025, 1, 2, tzinfo=UTC))


def rewritten(checkpoint: Checkpoint, edit: Callable[[Arrays], None]) -> bytes:
    """The same with other arrays."""
    data = written(checkpoint)
    arrays = safetensors.numpy.load(data)
    edit(arrays)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return safetensors.numpy.save(arrays, header["__metadata__"])


def restated(checkpoint: Checkpoint, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The same with another manifest: text, or a document."""
    data = written(checkpoint)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    stated = edit(json.loads(header["__metadata__"]["manifest"]))
    text = stated if isinstance(stated, str) else json.dumps(stated)
    return safetensors.numpy.save(safetensors.numpy.load(data), {"manifest": text})


@pytest.mark.parametrize("config", [cases.SMALL, GeneratorConfig.prime(n_fft=4096)], ids=["prime-log", "prime"])
def test_it_is_rebuilt_bit_for_bit(config: GeneratorConfig) -> None:
    made = cases.checkpoint(seed=5, config=config)
    rebuilt = Checkpoint.from_bytes(written(made))
    assert rebuilt.parameters.config == config
    expected, found = cases.arrays(made), cases.arrays(rebuilt)
    assert list(expected) == list(found)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert written(rebuilt) == written(made)


def with_prior(checkpoint: Checkpoint) -> Checkpoint:
    """The same with the path prior of three random listeners."""
    prior = learn_path_prior(*(cases.random_paths(n) for n in (400, 100)), ["a", "a", "b", "b", "c", "c"])
    return Checkpoint(checkpoint.manifest, replace(checkpoint.parameters, path_prior=prior), checkpoint.golden)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("secondary.residual_variance", np.zeros(4097), "from 0 to 0"),
        ("primary.variance", np.full(4097, -1.0), "from -1 to -1"),
        ("primary.directions", np.zeros((2, 4097, 2)), "shape"),
        ("primary.directions", np.zeros((65, 4097, 2)), "shape"),
        ("primary.directions", np.zeros(()), "shape"),
        ("more", np.zeros(1), "unknown or missing"),
    ],
)
def test_wrong_path_prior_is_named(checkpoint: Checkpoint, name: str, value: Arrays, found: str) -> None:
    change = {f"path_prior.{name}": np.asarray(value, np.float32)}
    data = rewritten(with_prior(checkpoint), lambda arrays: arrays.update(change))
    with pytest.raises(ValueError, match=found):
        Checkpoint.from_bytes(data)


def _set(name: str, value: float) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name].reshape(-1)[3] = value

    return edit


def _with(name: str, make: Callable[[NDArray[np.generic]], NDArray[np.generic]]) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name] = make(arrays[name])

    return edit


def _without(name: str) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        del arrays[name]

    return edit


STEM = "generator.stem.0.weight"
nan = float("nan")


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (_set(STEM, nan), rf"{STEM}: from nan to nan"),
        (_with(STEM, lambda a: a.astype(np.float64)), "in float64, expected .* in float32"),
        (_with(STEM, lambda a: a[..., 1:].copy()), r"of shape \[8, 12, 8\]"),
        (_without(STEM), rf"unknown or missing: \['{STEM}'\]"),
        (lambda a: a.update(more=np.zeros(1, np.float32)), r"unknown or missing: \['more'\]"),
        (_set("reference_psd", -1), "reference_psd: from -1 to"),
        (_with("reference_psd", np.zeros_like), "reference_psd: a total of 0"),
        (_set("band_uncertainty", -0.5), "band_uncertainty: from -0.5 to"),
    ],
)
def test_wrong_array_is_named(checkpoint: Checkpoint, edit: Callable[[Arrays], None], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        Checkpoint.from_bytes(rewritten(checkpoint, edit))


@pytest.mark.parametrize(
    "data", [b"", bytes(64), b"\xff" * 64, b"PK\x03\x04" + bytes(100)], ids=["empty", "zeros", "ones", "zip"]
)
def test_bytes_that_are_no_safetensors_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="safetensors"):
        Checkpoint.from_bytes(data)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"n_channels": 16}, r"of shape \[8, .*expected \[16"),
        ({"n_channels": 10**9}, "n_channels"),
        ({"kind": "transformer"}, "kind"),
        ({"bound_db": "40"}, "bound_db"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_configuration_that_does_not_fit_is_rejected(
    checkpoint: Checkpoint, change: dict[str, object], found: str
) -> None:
    data = restated(checkpoint, lambda plain: {**plain, "generator": {**plain["generator"], **change}})
    with pytest.raises(ValueError, match=found):
        Checkpoint.from_bytes(data)


ODD = {
    "no JSON": lambda plain: "not json",
    "no object": lambda plain: [plain],
    "nested too deeply for Python": lambda plain: '{"training":' * 200_000,
    "nested too deeply for a client": lambda plain: {**plain, "training": {"a": json.loads("[" * 300 + "]" * 300)}},
    "a seed of 4000 digits": lambda plain: {**plain, "seed": int("7" * 4000)},
    "a large number among the options": lambda plain: {**plain, "training": {"rate": [2**64]}},
    "another form": lambda plain: {**plain, "schema_version": 1},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_manifest_is_rejected(checkpoint: Checkpoint, odd: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ValueError, match="Manifest"):
        Checkpoint.from_bytes(restated(checkpoint, odd))


LAST_BIAS = "head.2.bias"


def test_each_filter_is_held_to_answer(checkpoint: Checkpoint) -> None:
    golden = checkpoint.golden
    golden.compare(golden.taps, golden.refined_taps)
    with pytest.raises(GoldenMismatch, match="in taps"):
        golden.compare(golden.refined_taps, golden.refined_taps)
    with pytest.raises(GoldenMismatch, match="in refined_taps"):
        golden.compare(golden.taps, golden.taps)


@pytest.mark.parametrize("spoil", [lambda taps: taps * np.nan, lambda taps: taps * np.inf, lambda taps: taps[:-1]])
def test_what_is_no_filter_never_passes(checkpoint: Checkpoint, spoil) -> None:
    golden = checkpoint.golden
    with pytest.raises(GoldenMismatch, match=r"error of (nan|inf)"):
        golden.compare(spoil(golden.taps), golden.refined_taps)


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
