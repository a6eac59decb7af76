"""The store and the paths of the service's tests."""

from tests.service.conftest import default_model, ear, store_folder

__all__ = ["default_model", "ear", "store_folder"]
