import pytest

from model_store import errors


@pytest.mark.parametrize(
    "name", ["InvalidName", "UnknownModel", "PublishFailed", "CorruptStore", "CorruptCheckpoint"]
)
def test_one_base_catches_all(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.ModelStoreError)


def test_a_corrupt_file_says_what_was_found_and_expected() -> None:
    fault = errors.CorruptCheckpoint("golden.safetensors", "nothing", "a file").inside("ears/3")
    assert str(fault) == "ears/3/golden.safetensors: found nothing, expected a file"
    assert (fault.file, fault.found, fault.expected) == ("ears/3/golden.safetensors", "nothing", "a file")


def test_a_mismatch_says_how_far_off() -> None:
    fault = errors.GoldenMismatch("taps", 0.5, 0.01)
    assert str(fault) == "golden case: found a relative error of 0.5 in taps, expected at most 0.01"
