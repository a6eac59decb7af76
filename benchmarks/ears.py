"""Ears for timing designs: estimates as a service receives them, and the true paths for scoring."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prime_anc.method.design import design_all, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.types import DesignOptions, Model, Paths, Problem
from training.data import open_dataset
from training.datasets.noise import read_noise, simulated_noise
from training.measurements import Measurements

WINDOW = 8192
N_SIMULATED_LISTENERS, N_QUICK_LISTENERS = 8, 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--data` and `--noise`."""
    parser.add_argument("--data", type=Path, help="folder of the PANDAR database (default: simulated ears)")
    parser.add_argument(
        "--noise", type=Path, help="folder of noise recordings (default: DATA/noise; simulated without DATA)"
    )


def measure(options: argparse.Namespace, n_listeners: int = N_SIMULATED_LISTENERS) -> Measurements:
    """Read or simulate paths and noise and calibrate all original ears; warns if data are simulated.

    Raises
    ------
    DatasetError
        The data are missing or unusable.
    """
    folder = options.noise or (options.data / "noise" if options.data else None)
    noise = read_noise(folder) if folder else simulated_noise()
    dataset = open_dataset("pandar" if options.data else "simulated", options.data, n_listeners=n_listeners)
    if dataset.is_simulated or noise.is_simulated:
        print("SIMULATED data: the noise reduction below is not that of measured ears", file=sys.stderr)
    return Measurements.calibrate(dataset, noise, window=WINDOW, conditions="original")


def load(options: argparse.Namespace) -> Ears:
    """Load all ears of the data; a few simulated ones for `--quick`. Errors as `measure`."""
    measurements = measure(options, N_QUICK_LISTENERS if options.quick else N_SIMULATED_LISTENERS)
    estimates, psd = measurements.estimates, measurements.reference_psd.numpy().astype(np.float32)

    def posed(primary: Any, secondary: Any) -> Problem:
        paths = (np.ascontiguousarray(item, np.float32) for item in (primary, secondary))
        return Problem((Paths(*paths),), reference_psd=psd)

    return Ears(
        estimated=[posed(*item) for item in zip(estimates.primary, estimates.secondary, strict=True)],
        true=[posed(pair.primary, pair.secondary) for pair in measurements.pairs],
        data=provenance(measurements),
    )


def provenance(measurements: Measurements) -> dict[str, Any]:
    """Return what is stated beside the figures."""
    dataset = measurements.dataset
    return {
        "dataset": dataset.name,
        "measured": not (dataset.is_simulated or measurements.noise.is_simulated),
        "fingerprint": dataset.fingerprint,
        "n_ears": len(measurements.pairs),
        "window": measurements.window,
    }


@dataclass(frozen=True)
class Ears:
    """Original ears in order."""

    # Calibrated impulse responses.
    estimated: list[Problem]
    # True paths, for scoring.
    true: list[Problem]
    # Provenance, stated beside the figures.
    data: dict[str, Any]

    def batch(self, number: int, size: int) -> list[Problem]:
        """Return the ears of round `number`: rounds advance by one ear and wrap around."""
        return [self.estimated[(number + offset) % len(self.estimated)] for offset in range(size)]

    def reduction_db(self, model: Model, options: DesignOptions) -> float:
        """Design for all ears, and score on the true paths: the mean noise reduction."""
        designs = [answer_or_raise(item) for item in design_all(self.estimated, options, model)]
        found = predict_all(self.true, [design.taps for design in designs], model, is_true=True)
        return float(np.mean([answer_or_raise(item).mean_noise_reduction_db for item in found]))
