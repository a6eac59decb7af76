"""The store, the paths and the program of the service's tests."""

from tests.service.conftest import ear, program, store_folder

__all__ = ["ear", "program", "store_folder"]
