"""A checkpoint in memory, and the bytes that it is on disk.

Arrays are stored as safetensors, which holds numbers and nothing that could run. Reading checks every array
against the configuration in the manifest and needs no torch.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from model_store.errors import CorruptCheckpoint
from model_store.golden import GoldenCase
from model_store.manifest import Manifest
from model_store.version_folder import GENERATOR_FILE, GOLDEN_FILE, MANIFEST_FILE, REFERENCE_FILE
from synthesis.backends.base import Float32, ModelParameters
from synthesis.conventions import MAX_TOTAL_PSD, MIN_TOTAL_PSD, N_BINS
from synthesis.errors import InvalidOption
from synthesis.generator_config import GeneratorConfig
from synthesis.octave_bands import WIDE_BANDS
from synthesis.path_prior import PathPrior, array_shapes
from synthesis.plausibility import SupportPrior

Shapes = Mapping[str, tuple[int, ...]]

REFERENCE_SHAPES: Shapes = {"reference_psd": (N_BINS,), "band_uncertainty": (2, len(WIDE_BANDS))}

PRIOR = "path_prior."
"""What the names of a path prior's arrays begin with, beside those of REFERENCE_SHAPES where there is one."""

MAX_DIRECTIONS = 64

RANGES = {
    "band_uncertainty": (0.0, 1e4),
    "n_ears": (1.0, 1e6),
    "mean": (-1e6, 1e6),
    "directions": (-1e6, 1e6),
    "variance": (1e-30, 1e12),
    "residual_variance": (1e-30, 1e12),
    "tail_variance": (0.0, 1e12),
    "level_db": (-200.0, 200.0),
    "level_spread_db": (0.0, 100.0),
}
"""Least and largest value of an array, by the last part of its name. Published models have variances of 1e-12 to 10
and uncertainties up to 100; far beyond that nothing would be left of what is computed in float32."""


@dataclass(eq=False)
class Checkpoint:
    """Everything that one version holds.

    manifest: what the checkpoint says of itself. parameters: the model, finite float32; reference_psd is >= 0, its
    total is from MIN_TOTAL_PSD to MAX_TOTAL_PSD; band_uncertainty and the path prior are within RANGES. golden: one
    ear and the filters that the model designs for it.
    """

    manifest: Manifest
    parameters: ModelParameters
    golden: GoldenCase

    def array_files(self) -> dict[str, bytes]:
        """The safetensors files by name. The same arrays give the same bytes."""
        own = self.parameters
        prior = {} if own.path_prior is None else own.path_prior.arrays()
        reference = {"reference_psd": own.reference_psd, "band_uncertainty": own.band_uncertainty}
        return {
            GENERATOR_FILE: _to_safetensors(own.weights),
            REFERENCE_FILE: _to_safetensors(reference | {PRIOR + name: array for name, array in prior.items()}),
            GOLDEN_FILE: _to_safetensors(self.golden.arrays()),
        }

    @classmethod
    def from_files(cls, manifest: Manifest, files: Mapping[str, bytes]) -> Checkpoint:
        """Rebuild from a manifest and the content of the safetensors files, digests already checked.

        Raises CorruptCheckpoint, naming the file and the array, for a configuration that no generator can be built
        from, bytes that are no safetensors, a missing, unexpected, misshapen or mistyped array, NaN or infinity,
        and values out of their range.
        """
        config = _config(manifest)
        weights = _read_arrays(GENERATOR_FILE, files[GENERATOR_FILE], config.weight_shapes)
        stored = _load(REFERENCE_FILE, files[REFERENCE_FILE])
        shapes = {**REFERENCE_SHAPES, **_prior_shapes(stored)}
        reference = _checked(REFERENCE_FILE, stored, shapes)
        prior = {name.removeprefix(PRIOR): reference.pop(name) for name in shapes if name.startswith(PRIOR)}
        golden = _read_arrays(GOLDEN_FILE, files[GOLDEN_FILE], GoldenCase.SHAPES)
        psd = reference["reference_psd"]
        _check_range(REFERENCE_FILE, "reference_psd", psd, 0, MAX_TOTAL_PSD)
        if not MIN_TOTAL_PSD <= (total := float(psd.sum(dtype=np.float64))) <= MAX_TOTAL_PSD:
            expected = f"{MIN_TOTAL_PSD:g} to {MAX_TOTAL_PSD:g}"
            raise CorruptCheckpoint(REFERENCE_FILE, f"a total of {total:.4g} in reference_psd", expected)
        for name, array in {**reference, **{PRIOR + each: prior[each] for each in prior}}.items():
            if name != "reference_psd":
                _check_range(REFERENCE_FILE, name, array, *RANGES[name.rpartition(".")[2]])
        _check_range(GOLDEN_FILE, "coherence", golden["coherence"], 0, 1)
        path_prior = PathPrior.from_arrays(prior) if prior else None
        support = None if manifest.support_traits is None else SupportPrior(manifest.support_traits)
        parameters = ModelParameters(config, weights, **reference, path_prior=path_prior, support=support)
        return cls(manifest, parameters, GoldenCase(**golden))


def _config(manifest: Manifest) -> GeneratorConfig:
    try:
        config = GeneratorConfig.from_dict(manifest.generator)
    except InvalidOption as error:
        raise CorruptCheckpoint(MANIFEST_FILE, str(error), "a generator's configuration") from error
    if config.n_parameters != manifest.n_parameters:
        raise CorruptCheckpoint(
            MANIFEST_FILE,
            f"n_parameters {manifest.n_parameters}",
            f"{config.n_parameters}, which the configuration gives",
        )
    return config


def _to_safetensors(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """The arrays in their own type: a wrong one is for `from_files` to refuse, not to hide here."""
    return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def _prior_shapes(arrays: Mapping[str, NDArray[np.generic]]) -> Shapes:
    """Of the path prior's arrays, none where none is stored."""
    if not any(name.startswith(PRIOR) for name in arrays):
        return {}
    directions = arrays.get(PRIOR + "primary.directions")
    n_directions = len(directions) if directions is not None and directions.ndim else 0
    shapes = array_shapes(min(n_directions, MAX_DIRECTIONS))
    return {PRIOR + name: shape for name, shape in shapes.items()}


def _read_arrays(file: str, data: bytes, shapes: Shapes) -> dict[str, Float32]:
    """Finite float32 arrays of exactly these names and shapes, in their order, or CorruptCheckpoint."""
    return _checked(file, _load(file, data), shapes)


def _load(file: str, data: bytes) -> dict[str, NDArray[np.generic]]:
    try:
        arrays: dict[str, NDArray[np.generic]] = safetensors.numpy.load(data)
    except (SafetensorError, KeyError) as error:  # a KeyError is a number type that NumPy does not have
        raise CorruptCheckpoint(file, f"no safetensors ({str(error)[:200]})", "a safetensors file") from error
    return arrays


def _checked(file: str, arrays: Mapping[str, NDArray[np.generic]], shapes: Shapes) -> dict[str, Float32]:
    if set(arrays) != set(shapes):
        unknown, missing = (reprlib.repr(sorted(each)) for each in (arrays.keys() - shapes, shapes.keys() - arrays))
        raise CorruptCheckpoint(
            file, f"unknown arrays {unknown} and missing {missing}", f"exactly {len(shapes)} arrays"
        )
    found: dict[str, Float32] = {}
    for name, shape in shapes.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.shape != shape:
            raise CorruptCheckpoint(
                file, f"{name} of shape {list(array.shape)} in {array.dtype}", f"{list(shape)} in float32"
            )
        found[name] = array.astype(np.float32, copy=False)
        if n_bad := int((~np.isfinite(found[name])).sum()):
            raise CorruptCheckpoint(file, f"{n_bad} NaN or infinite values in {name}", "finite numbers only")
    return found


def _check_range(file: str, name: str, array: Float32, low: float, high: float) -> None:
    if not array.size:  # a prior without directions
        return
    low_found, high_found = float(array.min()), float(array.max())
    if low_found < low or high_found > high:
        raise CorruptCheckpoint(
            file, f"{name} from {low_found:.4g} to {high_found:.4g}", f"values from {low:g} to {high:g}"
        )
