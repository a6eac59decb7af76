"""What can go wrong with a model on disk.

The messages name models and files relative to the store's root, never the root itself, so that they may be
shown to a client as they are.
"""


class ModelStoreError(Exception):
    """Base of every error of this package."""


class InvalidName(ModelStoreError):
    """A model name, alias or reference that breaks the naming rule, or that is already taken."""


class ModelNotFound(ModelStoreError):
    """No model, version or alias goes by this reference."""


class PublishFailed(ModelStoreError):
    """Nothing was published: the store is as it was before the call."""


class StoreUnreachable(ModelStoreError):
    """Object storage did not answer, or refused."""


class CorruptStore(ModelStoreError):
    """A file or folder of the store is not what it should be.

    Attributes:
        file: the offending file or folder, relative to the store's root where that is known
            (``default/3.<digest>.safetensors``).
        found: what is there.
        expected: what should be there.
    """

    def __init__(self, file: str, found: str, expected: str) -> None:
        super().__init__(f"{file}: found {found}, expected {expected}")
        self.file = file
        self.found = found
        self.expected = expected


class CorruptCheckpoint(CorruptStore):
    """A version whose file is missing, altered or at odds with its manifest."""


class GoldenMismatch(ModelStoreError):
    """A synthesizer does not reproduce the stored answer.

    Attributes:
        quantity: ``taps`` (before refinement) or ``refined_taps`` (after one update).
        error: relative l2 error found; NaN if the answer was not finite.
        tolerance: largest error accepted.
    """

    def __init__(self, quantity: str, error: float, tolerance: float) -> None:
        super().__init__(
            f"golden case: found a relative error of {error:.3g} in {quantity}, expected at most {tolerance:.3g}"
        )
        self.quantity = quantity
        self.error = error
        self.tolerance = tolerance
