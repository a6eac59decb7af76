"""Simulated ears for every test of the benchmarks: calibrated once."""

import argparse

import pytest

from benchmarks import ears as ears_module
from benchmarks.ears import Ears
from training.measurements import Measurements


@pytest.fixture(scope="session")
def measurements() -> Measurements:
    """Two simulated listeners, four ears."""
    return ears_module.measure(argparse.Namespace(data=None, noise=None), n_listeners=2)


@pytest.fixture(scope="session")
def ears(measurements: Measurements) -> Ears:
    """Their ears."""
    return Ears.of(measurements)
