from collections.abc import Callable
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from model_store import Checkpoint, CorruptCheckpoint, GoldenMismatch
from model_store.manifest import Manifest
from model_store.version_folder import GENERATOR_FILE, GOLDEN_FILE, REFERENCE_FILE, TENSOR_FILES
from synthesis.generator import GeneratorConfig
from tests.model_store import cases

Tensors = dict[str, torch.Tensor]


def described(checkpoint: Checkpoint) -> Manifest:
    """The manifest with the fields that a checkpoint is rebuilt from."""
    config, n_parameters = checkpoint.generator.config, checkpoint.generator.n_parameters
    return checkpoint.manifest.model_copy(update={"generator": config.to_dict(), "n_parameters": n_parameters})


@pytest.mark.parametrize("config", [cases.SMALL, GeneratorConfig.prime(n_fft=4096)], ids=["prime-log", "prime"])
def test_it_is_rebuilt_bit_for_bit(config: GeneratorConfig) -> None:
    made = cases.checkpoint(seed=5, config=config)
    rebuilt = Checkpoint.from_files(described(made), made.tensor_files())
    assert rebuilt.generator.config == config
    expected, found = cases.tensors(made), cases.tensors(rebuilt)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert rebuilt.tensor_files() == made.tensor_files()
    assert not rebuilt.generator.training
    assert not any(each.requires_grad for each in rebuilt.generator.parameters())


def test_loading_draws_no_random_numbers(checkpoint: Checkpoint) -> None:
    before = torch.random.get_rng_state()
    Checkpoint.from_files(described(checkpoint), checkpoint.tensor_files())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_synthesizer_shares_nothing_with_its_checkpoint(checkpoint: Checkpoint) -> None:
    before = {name: tensor.clone() for name, tensor in cases.tensors(checkpoint).items()}
    synthesizer = checkpoint.synthesizer(torch.float64, "cpu")
    assert {each.dtype for each in synthesizer.parameters()} == {torch.float64}
    for tensor in [*synthesizer.parameters(), synthesizer.reference_psd, synthesizer.band_uncertainty]:
        tensor.data.fill_(7)
    for tensor in checkpoint.synthesizer().parameters():
        tensor.data.fill_(7)
    assert all(torch.equal(before[name], tensor) for name, tensor in cases.tensors(checkpoint).items())


def test_the_files_hold_safetensors_and_no_pickle(checkpoint: Checkpoint) -> None:
    for data in checkpoint.tensor_files().values():
        assert data[8:9] == b"{"  # eight bytes of length, then the header in JSON
        assert not data.startswith((b"PK", b"\x80"))  # a zip as torch.save writes it, or a bare pickle


def _set(name: str, value: float) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[name].view(-1)[3] = value

    return edit


def _with(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[name] = make(tensors[name])

    return edit


def _without(name: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        del tensors[name]

    return edit


STEM = "stem.0.weight"
nan, inf = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("file", "edit", "found"),
    [
        (GENERATOR_FILE, _set(STEM, nan), f"1 NaN or infinite values in {STEM}"),
        (GENERATOR_FILE, _set(STEM, -inf), f"1 NaN or infinite values in {STEM}"),
        (GENERATOR_FILE, _with(STEM, torch.Tensor.double), "torch.float64, expected .* in torch.float32"),
        (GENERATOR_FILE, _with(STEM, torch.Tensor.half), "torch.float16"),
        (GENERATOR_FILE, _with(STEM, lambda t: t[..., 1:].contiguous()), r"shape \[8, 12, 8\]"),
        (GENERATOR_FILE, _without(STEM), rf"missing \['{STEM}'\]"),
        (GENERATOR_FILE, lambda t: t.update(more=torch.zeros(1)), r"unknown tensors \['more'\]"),
        (REFERENCE_FILE, _set("reference_psd", nan), "NaN or infinite values in reference_psd"),
        (REFERENCE_FILE, _set("reference_psd", -1), "reference_psd from -1 to"),
        (REFERENCE_FILE, _with("reference_psd", torch.zeros_like), "an all-zero reference_psd"),
        (REFERENCE_FILE, _set("band_uncertainty", -0.5), "band_uncertainty from -0.5 to"),
        (REFERENCE_FILE, _without("band_uncertainty"), "missing"),
        (GOLDEN_FILE, _set("taps", nan), "NaN or infinite values in taps"),
        (GOLDEN_FILE, _set("coherence", 1.5), "coherence from .* to 1.5, expected values from 0 to 1"),
        (GOLDEN_FILE, _with("primary", lambda t: t[1:].clone()), r"shape \[8191\]"),
    ],
)
def test_a_wrong_tensor_is_named(
    checkpoint: Checkpoint, file: str, edit: Callable[[Tensors], None], found: str
) -> None:
    files = checkpoint.tensor_files()
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(files[file]).items()}
    edit(tensors)
    with pytest.raises(CorruptCheckpoint, match=f"^{file}: found .*{found}"):
        Checkpoint.from_files(described(checkpoint), {**files, file: safetensors.torch.save(tensors)})


@pytest.mark.parametrize("file", TENSOR_FILES)
@pytest.mark.parametrize(
    "data", [b"", bytes(64), b"\xff" * 64, b"PK\x03\x04" + bytes(100)], ids=["empty", "zeros", "ones", "zip"]
)
def test_bytes_that_are_no_safetensors_are_refused(checkpoint: Checkpoint, file: str, data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match=f"^{file}: found "):
        Checkpoint.from_files(described(checkpoint), {**checkpoint.tensor_files(), file: data})


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
        Checkpoint.from_files(manifest, checkpoint.tensor_files())


def test_the_golden_case_of_another_generator_is_not_met(checkpoint: Checkpoint) -> None:
    assert checkpoint.check_golden().taps < 1e-4
    other = replace(checkpoint, generator=cases.generator(seed=99))
    with pytest.raises(GoldenMismatch, match="in taps"):
        other.check_golden()
