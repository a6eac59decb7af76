"""A checkpoint in memory and as a safetensors file, with its golden case.

Safetensors contains numbers and text and nothing executable. Reading checks the arrays against the configuration in the
manifest and needs no torch. Digests prove that the stored numbers are those that were published; the golden case, one
ear with the filters that the model designs for it, proves that machine, backend and code still design the same from
them.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from model_store.errors import CorruptCheckpoint, GoldenMismatch, PublishFailed
from model_store.manifest import Manifest
from prime_anc.measure.prior import PathPrior, array_shapes
from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import MAX_TOTAL_PSD, MIN_TOTAL_PSD, N_BINS, N_TAPS
from prime_anc.method.design import design
from prime_anc.method.errors import InvalidOption, SynthesisError
from prime_anc.method.plausibility import SupportPrior
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.support_statistics import LARGEST_UNCERTAINTY
from prime_anc.method.types import DesignOptions, Float32, Model, ModelParameters, Paths, Problem

Shapes = Mapping[str, tuple[int, ...]]

REFERENCE_SHAPES: Shapes = {"reference_psd": (N_BINS,), "band_uncertainty": (2, len(WIDE_BANDS))}

# Prefixes of the names of a generator's weights, the golden case's arrays and a path prior's.
GENERATOR, GOLDEN, PRIOR = "generator.", "golden.", "path_prior."

# Key of the header's metadata.
MANIFEST_KEY = "manifest"

MAX_DIRECTIONS = 64

# Range of an array, by the last part of its name. Published models have variances of 1e-12 to 10 and uncertainties up
# to 100; values far beyond would exhaust float32 in later computations.
RANGES = {
    "band_uncertainty": (0.0, LARGEST_UNCERTAINTY),
    "n_ears": (1.0, 1e6),
    "mean": (-1e6, 1e6),
    "directions": (-1e6, 1e6),
    "variance": (1e-30, 1e12),
    "residual_variance": (1e-30, 1e12),
    "level_db": (-200.0, 200.0),
    "level_spread_db": (0.0, 100.0),
}


PRIMARY_SAMPLES = 8192
SECONDARY_SAMPLES = 2048

# Above the gain of any filter, and still finite in float32 on a linear scale.
NO_CEILING_DB = 300.0

# Largest relative l2 error of the taps. Before and after an update, float32 in torch differs from the core by at most
# 6.2e-3 on six measured ears and 8.8e-3 on 20 simulated ones, and either from float64 by at most 6.6e-3. Unrefined in
# place of refined filters differ by 2.4e-2 and more.
GOLDEN_TOLERANCE = 1.5e-2


def sha256(data: bytes) -> str:
    """Compute a digest in the form ``sha256:`` and 64 lower-case hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class GoldenErrors:
    """Relative l2 errors |found - golden| / |golden| of the two stored filters; NaN if not finite."""

    taps: float
    refined_taps: float


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """One ear's estimates and the filters that the CPU core designs from them, as it does those that are scored.

    All arrays are float32 and finite.
    """

    # Impulse response, [8192], zero-padded.
    primary: Float32
    # Impulse response, [2048].
    secondary: Float32
    # Control filter before refinement, [2048], without a ceiling.
    taps: Float32
    # After one update in the `fast` profile, [2048], without a ceiling.
    refined_taps: Float32

    SHAPES: ClassVar[dict[str, tuple[int, ...]]] = {
        "primary": (PRIMARY_SAMPLES,),
        "secondary": (SECONDARY_SAMPLES,),
        "taps": (N_TAPS,),
        "refined_taps": (N_TAPS,),
    }

    @staticmethod
    def make(
        parameters: ModelParameters,
        primary: NDArray[np.floating],
        secondary: NDArray[np.floating],
    ) -> GoldenCase:
        """Design for primary [<= 8192] and secondary [<= 2048], as if they were exact.

        The responses are first rounded to float32, as they will be stored.

        Raises
        ------
        ValueError
            A response is empty or too long.
        SynthesisError
            No filter can be designed for the paths.
        """
        question = (
            _padded("primary", primary, PRIMARY_SAMPLES),
            _padded("secondary", secondary, SECONDARY_SAMPLES),
        )
        return GoldenCase(*question, *_designs(Model.on("cpu", parameters), _problem(*question)))

    @property
    def problem(self) -> Problem:
        """Return the design problem."""
        return _problem(self.primary, self.secondary)

    def arrays(self) -> dict[str, Float32]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def compare(self, taps: Float32, refined_taps: Float32, tolerance: float = GOLDEN_TOLERANCE) -> GoldenErrors:
        """Compare two filters, [2048]; GoldenMismatch if an error exceeds `tolerance`."""
        found = GoldenErrors(_relative_error(taps, self.taps), _relative_error(refined_taps, self.refined_taps))
        for quantity, error in (("taps", found.taps), ("refined_taps", found.refined_taps)):
            if not error <= tolerance:  # NaN fails too
                raise GoldenMismatch(quantity, error, tolerance)
        return found

    def check(self, model: Model) -> GoldenErrors:
        """Compare designs of a model without and with one update; the error of a failed design is NaN."""
        try:
            taps, refined_taps = _designs(model, self.problem)
        except SynthesisError:
            taps = refined_taps = np.full(N_TAPS, np.nan, np.float32)
        return self.compare(taps, refined_taps)


@dataclass(eq=False)
class Checkpoint:
    """Content of one version."""

    SUFFIX: ClassVar[str] = "safetensors"

    # Description of the model.
    manifest: Manifest
    # Finite float32; the sum of reference_psd is from MIN_TOTAL_PSD to MAX_TOTAL_PSD, uncertainty and prior are within
    # RANGES.
    parameters: ModelParameters
    # One ear and the filters that the model designs for it.
    golden: GoldenCase

    def to_bytes(self, name: str, version: int, created: datetime) -> bytes:
        """Write the file of a version; the same arguments give the same bytes.

        Parameters
        ----------
        name, version, created
            Filled into the manifest, with the generator's configuration.

        Raises
        ------
        PublishFailed
            The manifest cannot be written as JSON.
        """
        parameters = self.parameters
        prior = {} if parameters.path_prior is None else parameters.path_prior.arrays()
        arrays = {"reference_psd": parameters.reference_psd, "band_uncertainty": parameters.band_uncertainty}
        arrays |= {GENERATOR + key: array for key, array in parameters.weights.items()}
        arrays |= {PRIOR + key: array for key, array in prior.items()}
        arrays |= {GOLDEN + key: array for key, array in self.golden.arrays().items()}
        try:
            config = parameters.config
            manifest = self.manifest.published(
                name, version, created, generator=config.to_dict(), n_parameters=config.n_parameters
            )
            text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise PublishFailed(f"{name}: not published, its manifest cannot be written ({error})") from error
        # In their present type: a wrong one is rejected by `from_bytes`.
        plain = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
        return safetensors.numpy.save(plain, {MANIFEST_KEY: text})

    @classmethod
    def from_bytes(cls, data: bytes, file: str) -> Checkpoint:
        """Read the content of a version's file, whose digest is already checked.

        Parameters
        ----------
        data
            Content of the file.
        file
            Name of the file in errors.

        Raises
        ------
        CorruptCheckpoint
            No safetensors, an unreadable manifest, an impossible configuration, a missing, unexpected, misshapen or
            mistyped array, NaN, infinity, or values out of range.
        """
        manifest, arrays = _manifest(data, file), _arrays(data, file)
        config = _config(manifest, file)
        shapes = {
            **REFERENCE_SHAPES,
            **{GENERATOR + key: shape for key, shape in config.weight_shapes.items()},
            **_prior_shapes(arrays),
            **{GOLDEN + key: shape for key, shape in GoldenCase.SHAPES.items()},
        }
        checked = _checked(file, arrays, shapes)
        psd = checked["reference_psd"]
        _check_range(file, "reference_psd", psd, 0, MAX_TOTAL_PSD)
        if not MIN_TOTAL_PSD <= (total := float(psd.sum(dtype=np.float64))) <= MAX_TOTAL_PSD:
            expected = f"{MIN_TOTAL_PSD:g} to {MAX_TOTAL_PSD:g}"
            raise CorruptCheckpoint(file, f"a total of {total:.4g} in reference_psd", expected)
        for key, array in checked.items():
            if key == "band_uncertainty" or key.startswith(PRIOR):
                _check_range(file, key, array, *RANGES[key.rpartition(".")[2]])
        prior = _part(checked, PRIOR)
        parameters = ModelParameters(
            config,
            _part(checked, GENERATOR),
            **{key: checked[key] for key in REFERENCE_SHAPES},
            path_prior=PathPrior.from_arrays(prior) if prior else None,
            support=None if manifest.support_traits is None else SupportPrior(manifest.support_traits),
            wearing=manifest.wearing,
        )
        return cls(manifest, parameters, GoldenCase(**_part(checked, GOLDEN)))


def _part(arrays: Mapping[str, Float32], prefix: str) -> dict[str, Float32]:
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _manifest(data: bytes, file: str) -> Manifest:
    """Read the manifest in the header; `_arrays` checks the rest of the header."""
    size = int.from_bytes(data[:8], "little")
    try:
        header: Any = json.loads(data[8 : 8 + size])
        text = header["__metadata__"][MANIFEST_KEY]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CorruptCheckpoint(file, "no safetensors with a manifest", "a version of a model") from None
    try:
        return Manifest.model_validate_json(text)
    except ValueError as error:  # as pydantic's are
        found = " ".join(str(error).split())[:300]
        raise CorruptCheckpoint(file, found, "a manifest that this version of the package can read") from error


def _arrays(data: bytes, file: str) -> dict[str, NDArray[np.generic]]:
    try:
        arrays: dict[str, NDArray[np.generic]] = safetensors.numpy.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a number type that NumPy lacks
        raise CorruptCheckpoint(file, f"no safetensors ({str(error)[:200]})", "a safetensors file") from error
    return arrays


def _config(manifest: Manifest, file: str) -> GeneratorConfig:
    try:
        config = GeneratorConfig.from_dict(manifest.generator)
    except InvalidOption as error:
        raise CorruptCheckpoint(file, str(error), "a generator's configuration") from error
    if config.n_parameters != manifest.n_parameters:
        raise CorruptCheckpoint(
            file, f"n_parameters {manifest.n_parameters}", f"{config.n_parameters}, which the configuration gives"
        )
    return config


def _prior_shapes(arrays: Mapping[str, NDArray[np.generic]]) -> Shapes:
    """Return the shapes of the path prior's arrays; none if there is no prior."""
    if not any(name.startswith(PRIOR) for name in arrays):
        return {}
    directions = arrays.get(PRIOR + "primary.directions")
    n_directions = len(directions) if directions is not None and directions.ndim else 0
    shapes = array_shapes(min(n_directions, MAX_DIRECTIONS))
    return {PRIOR + name: shape for name, shape in shapes.items()}


def _checked(file: str, arrays: Mapping[str, NDArray[np.generic]], shapes: Shapes) -> dict[str, Float32]:
    if set(arrays) != set(shapes):
        unknown, missing = (reprlib.repr(sorted(item)) for item in (arrays.keys() - shapes, shapes.keys() - arrays))
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


def _designs(model: Model, problem: Problem) -> tuple[Float32, Float32]:
    """Design taps [2048] before and after one update; raises SynthesisError."""
    taps, refined_taps = (design(problem, DesignOptions(n_updates=n), model).taps for n in (0, 1))
    return taps, refined_taps


def _padded(name: str, response: NDArray[np.floating], n_samples: int) -> Float32:
    if response.ndim != 1 or not 0 < len(response) <= n_samples:
        raise ValueError(
            f"golden {name}: its shape is {response.shape}; give an impulse response of 1 to {n_samples} samples"
        )
    padded = np.zeros(n_samples, np.float32)
    padded[: len(response)] = response
    return padded


def _relative_error(found: Float32, golden: Float32) -> float:
    if found.shape != golden.shape or not np.isfinite(found).all():
        return float("nan")
    exact = golden.astype(np.float64)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def _problem(primary: Float32, secondary: Float32) -> Problem:
    return Problem((Paths(primary, secondary),), max_gain_db=NO_CEILING_DB, exact=True)
