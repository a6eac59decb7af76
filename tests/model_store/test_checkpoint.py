from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from model_store import Checkpoint, CorruptCheckpoint, GoldenMismatch, ModelStore
from model_store.manifest import Manifest
from model_store.version_folder import GENERATOR_FILE, GOLDEN_FILE, REFERENCE_FILE, TENSOR_FILES
from synthesis.backends.reference import ReferenceBackend
from synthesis.generator_config import GeneratorConfig
from synthesis.path_prior import learn_path_prior
from tests.model_store import cases

Arrays = dict[str, NDArray[np.generic]]


def described(checkpoint: Checkpoint) -> Manifest:
    """The manifest with the fields that a checkpoint is rebuilt from."""
    config, n_parameters = checkpoint.parameters.config, checkpoint.parameters.config.n_parameters
    return checkpoint.manifest.model_copy(update={"generator": config.to_dict(), "n_parameters": n_parameters})


@pytest.mark.parametrize("config", [cases.SMALL, GeneratorConfig.prime(n_fft=4096)], ids=["prime-log", "prime"])
def test_it_is_rebuilt_bit_for_bit(config: GeneratorConfig) -> None:
    made = cases.checkpoint(seed=5, config=config)
    rebuilt = Checkpoint.from_files(described(made), made.array_files())
    assert rebuilt.parameters.config == config
    expected, found = cases.arrays(made), cases.arrays(rebuilt)
    assert list(expected) == list(found)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert rebuilt.array_files() == made.array_files()


def with_prior(checkpoint: Checkpoint) -> Checkpoint:
    """The same with the path prior of three random listeners."""
    prior = learn_path_prior(*(cases.random_paths(n) for n in (400, 100)), ["a", "a", "b", "b", "c", "c"])
    return Checkpoint(checkpoint.manifest, replace(checkpoint.parameters, path_prior=prior), checkpoint.golden)


def test_a_path_prior_is_stored_beside_the_reference(checkpoint: Checkpoint) -> None:
    made = with_prior(checkpoint)
    rebuilt = Checkpoint.from_files(described(made), made.array_files())
    assert made.parameters.path_prior is not None
    assert rebuilt.parameters.path_prior is not None
    expected, found = made.parameters.path_prior.arrays(), rebuilt.parameters.path_prior.arrays()
    assert expected["primary.directions"].shape == (1, 4097, 2)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert rebuilt.array_files() == made.array_files()
    assert Checkpoint.from_files(described(checkpoint), checkpoint.array_files()).parameters.path_prior is None


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("secondary.residual_variance", np.zeros(4097), "from 0 to 0"),
        ("primary.variance", np.full(4097, -1.0), "from -1 to -1"),
        ("primary.directions", np.zeros((2, 4097, 2)), "shape"),
        ("primary.directions", np.zeros((65, 4097, 2)), "shape"),
        ("primary.directions", np.zeros(()), "shape"),
        ("more", np.zeros(1), "unknown arrays"),
    ],
)
def test_a_wrong_path_prior_is_named(checkpoint: Checkpoint, name: str, value: Arrays, found: str) -> None:
    made = with_prior(checkpoint)
    files = made.array_files()
    arrays = safetensors.numpy.load(files[REFERENCE_FILE])
    arrays[f"path_prior.{name}"] = np.asarray(value, np.float32)
    with pytest.raises(CorruptCheckpoint, match=f"^{REFERENCE_FILE}: found .*{found}"):
        Checkpoint.from_files(described(made), {**files, REFERENCE_FILE: safetensors.numpy.save(arrays)})


def test_the_bundled_model_has_a_path_prior_of_its_support() -> None:
    bundled = ModelStore().load("default")
    assert bundled.parameters.path_prior is not None
    assert bundled.parameters.path_prior.n_ears == 2 * len(bundled.manifest.support)


def test_the_bundled_checkpoint_is_written_back_byte_for_byte() -> None:
    version = ModelStore().resolve("default")
    files = {file: (version.folder / file).read_bytes() for file in TENSOR_FILES}
    assert ModelStore().load("default").array_files() == files


def test_the_files_hold_safetensors_and_no_pickle(checkpoint: Checkpoint) -> None:
    for data in checkpoint.array_files().values():
        assert data[8:9] == b"{"  # eight bytes of length, then the header in JSON
        assert not data.startswith((b"PK", b"\x80"))  # a zip as torch.save writes it, or a bare pickle


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


STEM = "stem.0.weight"
nan, inf = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("file", "edit", "found"),
    [
        (GENERATOR_FILE, _set(STEM, nan), f"1 NaN or infinite values in {STEM}"),
        (GENERATOR_FILE, _set(STEM, -inf), f"1 NaN or infinite values in {STEM}"),
        (GENERATOR_FILE, _with(STEM, lambda a: a.astype(np.float64)), "in float64, expected .* in float32"),
        (GENERATOR_FILE, _with(STEM, lambda a: a.astype(np.float16)), "in float16"),
        (GENERATOR_FILE, _with(STEM, lambda a: a[..., 1:].copy()), r"shape \[8, 12, 8\]"),
        (GENERATOR_FILE, _without(STEM), rf"missing \['{STEM}'\]"),
        (GENERATOR_FILE, lambda a: a.update(more=np.zeros(1, np.float32)), r"unknown arrays \['more'\]"),
        (REFERENCE_FILE, _set("reference_psd", nan), "NaN or infinite values in reference_psd"),
        (REFERENCE_FILE, _set("reference_psd", -1), "reference_psd from -1 to"),
        (REFERENCE_FILE, _with("reference_psd", np.zeros_like), "a total of 0 in reference_psd"),
        (REFERENCE_FILE, _set("band_uncertainty", -0.5), "band_uncertainty from -0.5 to"),
        (REFERENCE_FILE, _without("band_uncertainty"), "missing"),
        (GOLDEN_FILE, _set("taps", nan), "NaN or infinite values in taps"),
        (GOLDEN_FILE, _set("coherence", 1.5), "coherence from .* to 1.5, expected values from 0 to 1"),
        (GOLDEN_FILE, _with("primary", lambda a: a[1:].copy()), r"shape \[8191\]"),
    ],
)
def test_a_wrong_array_is_named(
    checkpoint: Checkpoint, file: str, edit: Callable[[Arrays], None], found: str
) -> None:
    files = checkpoint.array_files()
    arrays = safetensors.numpy.load(files[file])
    edit(arrays)
    with pytest.raises(CorruptCheckpoint, match=f"^{file}: found .*{found}"):
        Checkpoint.from_files(described(checkpoint), {**files, file: safetensors.numpy.save(arrays)})


@pytest.mark.parametrize("file", TENSOR_FILES)
@pytest.mark.parametrize(
    "data", [b"", bytes(64), b"\xff" * 64, b"PK\x03\x04" + bytes(100)], ids=["empty", "zeros", "ones", "zip"]
)
def test_bytes_that_are_no_safetensors_are_refused(checkpoint: Checkpoint, file: str, data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match=f"^{file}: found "):
        Checkpoint.from_files(described(checkpoint), {**checkpoint.array_files(), file: data})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"n_channels": 16}, "n_parameters 3369, expected 11473"),
        ({"n_channels": 10**9}, "n_channels"),
        ({"kind": "transformer"}, "kind"),
        ({"bound_db": "40"}, "bound_db"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    checkpoint: Checkpoint, change: dict[str, object], found: str
) -> None:
    manifest = described(checkpoint)
    manifest = manifest.model_copy(update={"generator": {**manifest.generator, **change}})
    with pytest.raises(CorruptCheckpoint, match=rf"^manifest\.json: found .*{found}"):
        Checkpoint.from_files(manifest, checkpoint.array_files())


def test_the_golden_case_of_another_generator_is_not_met(checkpoint: Checkpoint) -> None:
    own, other = (ReferenceBackend(each) for each in (checkpoint.parameters, cases.parameters(seed=99)))
    assert checkpoint.golden.check(own).taps < 1e-4
    with pytest.raises(GoldenMismatch, match="in taps"):
        checkpoint.golden.check(other)
