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
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from model_store.errors import GoldenMismatch
from model_store.manifest import Manifest
from prime_anc.measure.prior import PathPrior, array_shapes
from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import COHERENCE_FLOOR, MAX_TOTAL_PSD, MIN_TOTAL_PSD, N_BINS, N_TAPS
from prime_anc.method.design import design
from prime_anc.method.errors import SynthesisError
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.types import DesignOptions, Float32, Model, ModelParameters, Paths, Problem

Shapes = dict[str, tuple[int, ...]]

REFERENCE_SHAPES: Shapes = {"reference_psd": (N_BINS,), "band_uncertainty": (len(WIDE_BANDS),)}

# Prefixes of the names of a generator's weights, the golden case's arrays and a path prior's.
GENERATOR, GOLDEN, PRIOR = "generator.", "golden.", "path_prior."

# Key of the header's metadata.
MANIFEST_KEY = "manifest"

MAX_DIRECTIONS = 64

# Range of an array, by the last part of its name; of a weight or a golden case, what float32 holds. Published models
# have variances of 1e-12 to 10 and uncertainties up to 100; values far beyond would exhaust float32 in later
# computations.
RANGES = {
    "reference_psd": (0.0, MAX_TOTAL_PSD),
    "band_uncertainty": (0.0, 1 / COHERENCE_FLOOR),
    "n_ears": (1.0, 1e6),
    "mean": (-1e6, 1e6),
    "directions": (-1e6, 1e6),
    "variance": (1e-30, 1e12),
    "residual_variance": (1e-30, 1e12),
    "level_db": (-200.0, 200.0),
    "level_spread_db": (0.0, 100.0),
}
LARGEST = float(np.finfo(np.float32).max)

PRIMARY_SAMPLES = 8192
SECONDARY_SAMPLES = 2048

# Above the gain of any filter, and still finite in float32 on a linear scale.
NO_CEILING_DB = 300.0

# Largest relative l2 error of the taps. Before and after an update, float32 in torch differs from the core by at most
# 6.2e-3 on six measured ears and 8.8e-3 on 20 simulated ones, and either from float64 by at most 6.6e-3. Unrefined in
# place of refined filters differ by 2.4e-2 and more.
GOLDEN_TOLERANCE = 1.5e-2
REMEDY = "publish a model of another release again with this one, and else look for a fault of the machine"


def sha256(data: bytes) -> str:
    """Compute a digest in the form ``sha256:`` and 64 lower-case hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


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

    SHAPES: ClassVar[Shapes] = {
        "primary": (PRIMARY_SAMPLES,),
        "secondary": (SECONDARY_SAMPLES,),
        "taps": (N_TAPS,),
        "refined_taps": (N_TAPS,),
    }

    @staticmethod
    def make(parameters: ModelParameters, *responses: NDArray[np.floating]) -> GoldenCase:
        """Design for a primary [<= 8192] and a secondary path [<= 2048], as if they were exact.

        The responses are first rounded to float32, as they will be stored.

        Raises
        ------
        ValueError
            A response is too long.
        SynthesisError
            No filter can be designed for the paths.
        """
        paths = (
            np.pad(np.asarray(response, np.float32), (0, n_samples - len(response)))
            for response, n_samples in zip(responses, (PRIMARY_SAMPLES, SECONDARY_SAMPLES), strict=True)
        )
        unsolved = GoldenCase(*paths, *2 * [np.zeros(N_TAPS, np.float32)])
        taps, refined_taps = unsolved.designs(Model.on("cpu", parameters))
        return replace(unsolved, taps=taps, refined_taps=refined_taps)

    @property
    def problem(self) -> Problem:
        """Return the design problem."""
        paths = Paths(self.primary, self.secondary)
        return Problem((paths,), max_gain_db=NO_CEILING_DB, exact=True)

    def designs(self, model: Model) -> list[Float32]:
        """Design taps [2048] without and with one update; raises SynthesisError."""
        return [design(self.problem, DesignOptions(n_updates=n), model).taps for n in (0, 1)]

    def check(self, model: Model) -> dict[str, float]:
        """Return the relative l2 errors of a model's designs without and with one update, by name.

        Raises
        ------
        GoldenMismatch
            An error exceeds GOLDEN_TOLERANCE, or nothing is designed.
        """
        try:
            designs = self.designs(model)
        except SynthesisError as error:
            raise GoldenMismatch(f"golden case: it is not designed ({error}); {REMEDY}") from error
        errors = {}
        for name, taps in zip(("taps", "refined_taps"), designs, strict=True):
            golden = getattr(self, name).astype(np.float64)
            errors[name] = distance = float(np.linalg.norm(taps - golden) / np.linalg.norm(golden))
            if not distance <= GOLDEN_TOLERANCE:  # NaN fails too
                raise GoldenMismatch(f"golden case: a relative error of {distance:.3g} in {name}; {REMEDY}")
        return errors


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
        ValueError
            The manifest cannot be written as JSON.
        """
        parameters, config = self.parameters, self.parameters.config
        prior = {} if parameters.path_prior is None else parameters.path_prior.arrays()
        arrays = {key: getattr(parameters, key) for key in REFERENCE_SHAPES}
        arrays |= {GENERATOR + key: array for key, array in parameters.weights.items()}
        arrays |= {PRIOR + key: array for key, array in prior.items()}
        arrays |= {GOLDEN + key: getattr(self.golden, key) for key in GoldenCase.SHAPES}
        manifest = self.manifest.published(
            name, version, created, generator=config.to_dict(), n_parameters=config.n_parameters
        )
        text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)
        # In their present type: a wrong one is rejected by `from_bytes`.
        plain = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
        return safetensors.numpy.save(plain, {MANIFEST_KEY: text})

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """Read the content of a version's file, whose digest is already checked.

        Raises
        ------
        ValueError
            No safetensors, an unreadable manifest, an impossible configuration, a missing, unexpected, misshapen or
            mistyped array, NaN, infinity, or values out of range.
        """
        metadata, arrays = read_safetensors(data)
        manifest = Manifest.model_validate_json(metadata.get(MANIFEST_KEY, ""))
        config = GeneratorConfig.from_dict(manifest.generator)
        shapes = REFERENCE_SHAPES | {GENERATOR + key: shape for key, shape in config.weight_shapes.items()}
        shapes |= _prior_shapes(arrays) | {GOLDEN + key: shape for key, shape in GoldenCase.SHAPES.items()}
        arrays = _checked(arrays, shapes)
        total = float(arrays["reference_psd"].sum(dtype=np.float64))
        if not MIN_TOTAL_PSD <= total <= MAX_TOTAL_PSD:
            raise ValueError(f"reference_psd: a total of {total:.4g}, not {MIN_TOTAL_PSD:g} to {MAX_TOTAL_PSD:g}")
        prior = _part(arrays, PRIOR)
        parameters = ModelParameters(
            config,
            _part(arrays, GENERATOR),
            **{key: arrays[key] for key in REFERENCE_SHAPES},
            path_prior=PathPrior.from_arrays(prior) if prior else None,
            support=None if manifest.support_traits is None else SupportPrior(manifest.support_traits),
            wearing=manifest.wearing,
        )
        return cls(manifest, parameters, GoldenCase(**_part(arrays, GOLDEN)))


def read_safetensors(data: bytes) -> tuple[dict[str, str], dict[str, Float32]]:
    """Return the metadata and the arrays of a safetensors file, whatever their type; ValueError if it is none."""
    try:
        arrays = safetensors.numpy.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, KeyError) as error:  # KeyError: a number type that NumPy lacks
        raise ValueError(f"no safetensors ({str(error)[:200]})") from error
    return header.get("__metadata__", {}), arrays


def _part(arrays: Mapping[str, Float32], prefix: str) -> dict[str, Float32]:
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _prior_shapes(arrays: Mapping[str, Float32]) -> Shapes:
    """Return the shapes of the path prior's arrays; none if there is no prior."""
    if not _part(arrays, PRIOR):
        return {}
    directions = arrays.get(PRIOR + "primary.directions", np.empty(0))
    n_directions = min(len(np.atleast_1d(directions)), MAX_DIRECTIONS)
    return {PRIOR + name: shape for name, shape in array_shapes(n_directions).items()}


def _checked(arrays: Mapping[str, Float32], shapes: Shapes) -> dict[str, Float32]:
    """Return arrays in the order of their shapes; ValueError unless they are float32, of these, and within RANGES."""
    if different := sorted(arrays.keys() ^ shapes.keys()):
        raise ValueError(f"arrays unknown or missing: {reprlib.repr(different)}")
    for name, shape in shapes.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.shape != shape:
            found = f"of shape {list(array.shape)} in {array.dtype}"
            raise ValueError(f"{name}: {found}, expected {list(shape)} in float32")
        last = "" if name.startswith((GENERATOR, GOLDEN)) else name.rpartition(".")[2]
        low, high = RANGES.get(last, (-LARGEST, LARGEST))
        if not ((low <= array) & (array <= high)).all():  # NaN neither
            found = f"from {array.min():.4g} to {array.max():.4g}"
            raise ValueError(f"{name}: {found}, expected {low:.4g} to {high:.4g}")
    return {name: arrays[name] for name in shapes}
