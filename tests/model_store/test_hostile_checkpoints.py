"""Checkpoints with correct digests and absurd numbers are refused, or their designs are finite."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from model_store.checkpoint import GENERATOR, GOLDEN, MANIFEST_KEY, PRIOR, Checkpoint
from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.estimate import GainTake
from prime_anc.method.design import design_all
from prime_anc.method.errors import InvalidOption, SynthesisError
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.support.findings import find_implausible
from prime_anc.method.support.statistics import SupportStatistics
from prime_anc.method.types import Design, DesignOptions, Model, Paths, Problem
from tests.model_store import cases

VALUES = (0, -1, 1e-320, 3e38, math.nan)
NUMBERS = ("n_fft", "bound_db", "n_channels", "kernel_size", "n_groups", "n_points", "low_hz", "high_hz")
EXTREMES: tuple[dict[str, Any], ...] = (
    {"low_hz": 1.0, "high_hz": 2.0, "n_points": 4096},
    {"low_hz": 1.0, "high_hz": 24_000.0, "n_points": 8, "n_fft": 4096},
    {"low_hz": 12_000.0},
    {"n_channels": 1, "n_groups": 1, "kernel_size": 1, "dilations": [1024] * 32},
    {"kernel_size": 99, "dilations": [1024], "n_points": 8},
    {"n_groups": 24, "bound_db": 0.1},
    {"kind": "prime", "realisation": "minimum_phase", "bound_db": 120.0, "n_fft": 4096, "head_norm": True},
)
Arrays = dict[str, np.ndarray]
Case = tuple[str, dict[str, Any], Arrays]


def with_type(value: float, model: object) -> float | int:
    """A value as the field takes it, where it can."""
    is_whole = type(model) is int and math.isfinite(value) and value == int(value) and abs(value) < 2**63
    return int(value) if is_whole else float(value)


def hostile_cases() -> Iterator[Case]:
    """The bundled model with one number changed: of its configuration, its statistics, its arrays."""
    arrays = safetensors.numpy.load((BUNDLED_ROOT / ModelStore().resolve("bose-qc20").file).read_bytes())
    manifest = ModelStore().manifest("bose-qc20").model_dump(mode="json")
    generator = manifest["generator"]
    changes = [{name: with_type(value, generator[name])} for name in NUMBERS for value in VALUES]
    changes += [{"dilations": [with_type(value, 1)]} for value in VALUES]
    for change in (*changes, *EXTREMES):
        changed, changed_arrays = {**generator, **change}, arrays
        n_parameters = manifest["n_parameters"]
        try:
            shapes = GeneratorConfig.from_dict(changed).weight_shapes
        except InvalidOption:
            pass
        else:
            draw = np.random.default_rng(0)
            weights = {GENERATOR + name: 0.1 * draw.standard_normal(shape) for name, shape in shapes.items()}
            n_parameters = sum(weight.size for weight in weights.values())
            changed_arrays = {name: array for name, array in arrays.items() if not name.startswith(GENERATOR)}
            changed_arrays |= {name: array.astype(np.float32) for name, array in weights.items()}
        stated = {**manifest, "generator": changed, "n_parameters": n_parameters}
        yield f"generator {change}", stated, changed_arrays
    traits = manifest["support_traits"]
    for name, value in ((name, value) for name in traits for value in VALUES):
        old = traits[name]
        new = [value, *old[1:]] if isinstance(old, list) else with_type(value, old)
        yield f"traits {name} {value}", {**manifest, "support_traits": {**traits, name: new}}, arrays
    weights = [name for name in arrays if name.startswith(GENERATOR)][:2]
    others = [name for name in arrays if not name.startswith((GENERATOR, GOLDEN))]
    for name in (*others, *weights):
        for value in dict.fromkeys(map(np.float32, VALUES)):
            array = arrays[name].copy()
            array.reshape(-1)[3:4] = value
            yield f"{name} {value}", manifest, {**arrays, name: array}


def designs_are_finite(checkpoint: Checkpoint) -> bool:
    """Whether a design and what is said of its paths are finite, or errors of their own."""
    primary, secondary, coherence = cases.ear(7)
    ear = Problem((Paths(primary, secondary, coherence),))
    found = find_implausible(checkpoint.parameters.support, primary, secondary)
    figures = [
        figure
        for design in design_all([ear], DesignOptions(n_updates=1), Model.on("cpu", checkpoint.parameters))
        if isinstance(design, Design)
        for figure in (design.taps, design.prediction.noise_reduction_db, design.prediction.interval_db)
    ]
    return all(np.isfinite(figure).all() for figure in figures) and "nan" not in str(found)


def estimate_is_finite(checkpoint: Checkpoint) -> bool:
    """Whether a path estimated under the model's prior is finite, or an error of its own."""
    primary, secondary, _ = cases.ear(7)
    x = np.random.default_rng(0).standard_normal(9000)
    error = np.convolve(x, primary)[:9000]
    takes = [GainTake(0.0, x, error), GainTake(0.5, x, error - 0.5 * np.convolve(x, secondary)[:9000])]
    try:
        return bool(np.isfinite(calibrate(takes, prior=checkpoint.parameters.path_prior).estimate.secondary).all())
    except SynthesisError:
        return True


def use_all() -> None:
    """For each case, a line before it is used and one after."""
    np.seterr(all="ignore")
    for name, manifest, arrays in hostile_cases():
        print("begin", name, flush=True)
        try:
            checkpoint = Checkpoint.from_bytes(safetensors.numpy.save(arrays, {MANIFEST_KEY: json.dumps(manifest)}))
            sound = designs_are_finite(checkpoint)
        except ValueError:  # also where a backend finds that the grid is none
            print("refused", name)
        else:
            if name.startswith(PRIOR):  # estimates use nothing else of a model
                sound = sound and estimate_is_finite(checkpoint)
            print("sound" if sound else "UNSOUND", name)


def test_hostile_checkpoints_are_rejected_or_sound() -> None:
    program = "from tests.model_store.test_hostile_checkpoints import use_all; use_all()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1], done.stderr[-2000:])
    assert not [line for line in lines if line.startswith("UNSOUND")]
    assert sum(line.startswith("sound") for line in lines) >= len(EXTREMES)
    assert "refused generator {'low_hz': 1e-320}" in lines
    assert "refused generator {'n_groups': 0}" in lines


def test_hostile_statistics_are_named() -> None:
    known = ModelStore().manifest("bose-qc20").support_traits
    with pytest.raises(InvalidOption, match="covariance"):
        SupportStatistics(30, 4, known.mean, (0.0,) * 406, known.rate_change)
