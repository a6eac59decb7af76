"""A checkpoint in memory, and the bytes that it is on disk.

Every tensor is kept as safetensors, which holds numbers and nothing that could run. The generator is rebuilt from
the configuration in the manifest and takes only tensors of exactly its names, shapes and type.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from model_store.errors import CorruptCheckpoint
from model_store.golden import GoldenCase, GoldenErrors
from model_store.manifest import Manifest
from model_store.version_folder import GENERATOR_FILE, GOLDEN_FILE, MANIFEST_FILE, REFERENCE_FILE
from synthesis.conventions import N_BINS
from synthesis.errors import InvalidOption
from synthesis.generator import Generator, GeneratorConfig
from synthesis.octave_bands import WIDE_BANDS
from synthesis.synthesizer import Synthesizer

__all__ = ["Checkpoint", "GoldenCase", "GoldenErrors"]

Shapes = Mapping[str, tuple[int, ...]]

REFERENCE_SHAPES: Shapes = {"reference_psd": (N_BINS,), "band_uncertainty": (2, len(WIDE_BANDS))}


@dataclass
class Checkpoint:
    """Everything that one version holds.

    Attributes:
        manifest: what the checkpoint says of itself.
        generator: float32; on the CPU, in evaluation mode and without gradients when it comes from the store.
        reference_psd: mean square per bin of the reference noise, float32 [16385], >= 0, not all zero.
        band_uncertainty: what estimates of the support listeners did not know, per band of the 31 from 20 Hz to
            20 kHz, float32 [2, 31], >= 0 (`synthesis.estimate_uncertainty.learn_uncertainty`).
        golden: the question and the answer that loading is checked against.
    """

    manifest: Manifest
    generator: Generator
    reference_psd: Tensor
    band_uncertainty: Tensor
    golden: GoldenCase

    def synthesizer(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Synthesizer:
        """A synthesizer of its own: it shares no tensor with the checkpoint or with another."""
        synthesizer = Synthesizer(
            copy.deepcopy(self.generator), self.reference_psd.clone(), self.band_uncertainty.clone()
        )
        return synthesizer.to(device=device, dtype=dtype).eval()

    def check_golden(self) -> GoldenErrors:
        """Design the stored question in float32 on the CPU; GoldenMismatch unless the stored answer comes out."""
        return self.golden.check(self.synthesizer())

    def tensor_files(self) -> dict[str, bytes]:
        """The tensor files by name. The same tensors give the same bytes."""
        reference = {"reference_psd": self.reference_psd, "band_uncertainty": self.band_uncertainty}
        return {
            GENERATOR_FILE: _to_safetensors(self.generator.state_dict()),
            REFERENCE_FILE: _to_safetensors(reference),
            GOLDEN_FILE: _to_safetensors(self.golden.tensors()),
        }

    @classmethod
    def from_files(cls, manifest: Manifest, files: Mapping[str, bytes]) -> Checkpoint:
        """Rebuild from a manifest and the content of the tensor files, digests already checked.

        Raises CorruptCheckpoint, naming the file and the tensor, for a configuration that no generator can be
        built from, bytes that are no safetensors, a missing, unexpected, misshapen or mistyped tensor, NaN or
        infinity, and values out of their range.
        """
        generator = _generator(manifest, files[GENERATOR_FILE])
        reference = _read_tensors(REFERENCE_FILE, files[REFERENCE_FILE], REFERENCE_SHAPES)
        golden = _read_tensors(GOLDEN_FILE, files[GOLDEN_FILE], GoldenCase.SHAPES)
        for name, tensor in reference.items():
            _require_range(REFERENCE_FILE, name, tensor, high=float("inf"))
        if not bool(reference["reference_psd"].any()):
            raise CorruptCheckpoint(REFERENCE_FILE, "an all-zero reference_psd", "some power")
        _require_range(GOLDEN_FILE, "coherence", golden["coherence"], high=1.0)
        return cls(manifest, generator, **reference, golden=GoldenCase(**golden))


def _generator(manifest: Manifest, data: bytes) -> Generator:
    try:
        config = GeneratorConfig.from_dict(manifest.generator)
    except InvalidOption as error:
        raise CorruptCheckpoint(MANIFEST_FILE, str(error), "a generator's configuration") from error
    # Building draws fresh weights; whoever loads a model in the middle of a seeded run must not notice.
    with torch.random.fork_rng(devices=[]):
        generator = Generator(config)
    if generator.n_parameters != manifest.n_parameters:
        raise CorruptCheckpoint(
            MANIFEST_FILE,
            f"n_parameters {manifest.n_parameters}",
            f"{generator.n_parameters}, which the configuration gives",
        )
    shapes = {name: tuple(tensor.shape) for name, tensor in generator.state_dict().items()}
    generator.load_state_dict(_read_tensors(GENERATOR_FILE, data, shapes))
    return generator.eval().requires_grad_(False)


def _to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The tensors as they are, in their own type: a wrong one is for `from_files` to refuse, not to hide here."""
    plain = {name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain)


def _read_tensors(file: str, data: bytes, shapes: Shapes) -> dict[str, Tensor]:
    """Finite float32 tensors of exactly these names and shapes, or CorruptCheckpoint."""
    try:
        tensors = safetensors.torch.load(data)
    except (SafetensorError, KeyError) as error:  # a KeyError is a number type that torch does not have
        raise CorruptCheckpoint(file, f"no safetensors ({error})", "a safetensors file") from error
    if set(tensors) != set(shapes):
        unknown, missing = sorted(set(tensors) - set(shapes)), sorted(set(shapes) - set(tensors))
        raise CorruptCheckpoint(
            file, f"unknown tensors {unknown} and missing {missing}", f"exactly {len(shapes)} tensors"
        )
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != shapes[name]:
            raise CorruptCheckpoint(
                file,
                f"{name} of shape {list(tensor.shape)} in {tensor.dtype}",
                f"{list(shapes[name])} in torch.float32",
            )
        if n_bad := int((~torch.isfinite(tensor)).sum()):
            raise CorruptCheckpoint(file, f"{n_bad} NaN or infinite values in {name}", "finite numbers only")
    return tensors


def _require_range(file: str, name: str, tensor: Tensor, high: float) -> None:
    low_found, high_found = float(tensor.min()), float(tensor.max())
    if low_found < 0 or high_found > high:
        raise CorruptCheckpoint(
            file, f"{name} from {low_found:.4g} to {high_found:.4g}", f"values from 0 to {high:g}"
        )
