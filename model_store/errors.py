"""Errors of models on disk.

Messages name models and files relative to the store's root, never the root itself, so that clients may see them.
"""


class ModelStoreError(Exception):
    """Base of all errors of this package."""


class InvalidName(ModelStoreError):
    """A model name, alias or reference is malformed or taken."""


class ModelNotFound(ModelStoreError):
    """No model, version or alias has this name."""


class PublishFailed(ModelStoreError):
    """Nothing was published."""


class StoreUnreachable(ModelStoreError):
    """Object storage does not answer, or refuses."""


class CorruptStore(ModelStoreError):
    """A file or folder of the store is missing, altered, of another release, or not what it should be.

    The attribute `file` is its place relative to the store's root (``generic/3.<digest>.safetensors``).
    """

    def __init__(self, file: str, found: str, expected: str) -> None:
        super().__init__(
            f"{file}: found {found}, expected {expected}; put back a copy of it or, if another release published it, "
            "publish it again with this one"
        )
        self.file = file


class GoldenMismatch(ModelStoreError):
    """A model does not reproduce its stored filters."""
