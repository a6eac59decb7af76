"""The store and the paths of the service's tests."""

from tests.service.conftest import ear, store_folder

__all__ = ["ear", "store_folder"]
