"""Errors of models on disk.

Messages name models and files relative to the store's root, never the root itself, so that clients may see them.
"""

from typing import ClassVar


class ModelStoreError(Exception):
    """Base of all errors of this package."""


class InvalidName(ModelStoreError):
    """A model name, alias or reference is malformed or taken."""


class ModelNotFound(ModelStoreError):
    """No model, version or alias has this name."""


class PublishFailed(ModelStoreError):
    """Nothing was published; the store is unchanged."""


class StoreUnreachable(ModelStoreError):
    """Object storage does not answer, or refuses."""


class CorruptStore(ModelStoreError):
    """A file or folder of the store is not as expected.

    Attributes: file, the faulty file or folder relative to the store's root (``default/3.<digest>.safetensors``);
    found, its state; expected, the correct state.
    """

    REMEDY: ClassVar[str] = ""

    def __init__(self, file: str, found: str, expected: str) -> None:
        super().__init__(f"{file}: found {found}, expected {expected}{self.REMEDY}")
        self.file = file
        self.found = found
        self.expected = expected


class CorruptCheckpoint(CorruptStore):
    """A version's file is missing, altered, of another release, or contradicts its manifest."""

    REMEDY = "; put back a copy of the file or, if another release published it, publish it again with this one"


class GoldenMismatch(ModelStoreError):
    """A model does not reproduce the stored filter.

    Attributes: quantity, ``taps`` (before refinement) or ``refined_taps`` (after one update); error, the relative l2
    error, NaN if not finite; tolerance, the largest accepted error.
    """

    def __init__(self, quantity: str, error: float, tolerance: float) -> None:
        super().__init__(
            f"golden case: found a relative error of {error:.3g} in {quantity}, expected at most {tolerance:.3g}; "
            "publish a model of another release again with this one, and else look for a fault of the machine"
        )
        self.quantity = quantity
        self.error = error
        self.tolerance = tolerance
