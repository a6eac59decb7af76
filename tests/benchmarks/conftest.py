"""Simulated ears for every test of the benchmarks, calibrated once."""

import argparse

import pytest

from benchmarks import ears as ears_module
from benchmarks.ears import Ears


@pytest.fixture(scope="session")
def ears() -> Ears:
    """Four ears of two simulated listeners."""
    return Ears.of(ears_module.measure(argparse.Namespace(data=None, noise=None), n_listeners=2))
