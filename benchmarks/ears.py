"""Ears for timing designs: estimates as a service receives them, and the true paths for scoring."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prime_anc.method.design import predict_all
from prime_anc.method.errors import SynthesisError, answer_or_raise
from prime_anc.method.types import Design, Float32, Model, Paths, Problem
from training.data import open_dataset
from training.datasets.noise import read_noise, simulated_noise
from training.measurements import Measurements

WINDOW = 8192
N_SIMULATED_LISTENERS = 8
N_QUICK_LISTENERS = 2
MAX_SAMPLES = 32_768


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--data` and `--noise`."""
    parser.add_argument("--data", type=Path, help="folder of the PANDAR database (default: simulated ears)")
    parser.add_argument("--noise", type=Path, help="folder of noise recordings (default: DATA/noise, or simulated)")


def load(options: argparse.Namespace) -> Ears:
    """Load all ears of the data; a few simulated ones for `--quick`. Errors as `measure`."""
    return Ears.of(measure(options, N_QUICK_LISTENERS if options.quick else N_SIMULATED_LISTENERS))


def measure(options: argparse.Namespace, n_listeners: int = N_SIMULATED_LISTENERS) -> Measurements:
    """Read or simulate paths and noise and calibrate all original ears; warns if data are simulated.

    Raises
    ------
    DatasetError
        The data are missing or unusable.
    """
    noise_folder = options.noise
    if noise_folder is None and options.data is not None and (options.data / "noise").is_dir():
        noise_folder = options.data / "noise"
    noise = read_noise(noise_folder) if noise_folder else simulated_noise()
    if options.data:
        dataset = open_dataset("pandar", options.data)
    else:
        dataset = open_dataset("simulated", n_listeners=n_listeners)
    for what, simulated in (("ears", dataset.is_simulated), ("noise", noise.is_simulated)):
        if simulated:
            print(f"SIMULATED {what}: noise reduction below is not that of measured ears", file=sys.stderr)
    return Measurements.calibrate(dataset, noise, window=WINDOW, conditions="original")


@dataclass(frozen=True)
class Ears:
    """Original ears in order."""

    names: tuple[str, ...]
    # Calibrated impulse responses.
    estimated: list[Problem]
    # True paths, for scoring.
    true: list[Problem]
    # Provenance, stated beside the figures.
    data: dict[str, Any]

    @classmethod
    def of(cls, measurements: Measurements) -> Ears:
        """Select all original ears of the measurements."""
        dataset, estimates = measurements.dataset, measurements.estimates
        places = [i for i, pair in enumerate(measurements.pairs) if pair.condition == "original"]
        psd = _float32(measurements.reference_psd)
        return cls(
            names=tuple(f"{measurements.pairs[i].listener}/{measurements.pairs[i].ear}" for i in places),
            estimated=[
                Problem(
                    (Paths(_float32(estimates.primary[i]), _float32(estimates.secondary[i])),), reference_psd=psd
                )
                for i in places
            ],
            true=[
                Problem(
                    (Paths(_float32(measurements.pairs[i].primary), _float32(measurements.pairs[i].secondary)),),
                    reference_psd=psd,
                )
                for i in places
            ],
            data={
                "dataset": dataset.name,
                "measured": not dataset.is_simulated,
                "measured_noise": not measurements.noise.is_simulated,
                "fingerprint": dataset.fingerprint,
                "n_ears": len(places),
                "window": measurements.window,
            },
        )

    def __len__(self) -> int:
        """Return the number of ears."""
        return len(self.names)

    def batch(self, number: int, size: int) -> list[Problem]:
        """Return the ears of round `number`: rounds advance by one ear and wrap around."""
        return [self.estimated[(number + offset) % len(self)] for offset in range(size)]

    @property
    def pairs(self) -> list[tuple[Float32, Float32]]:
        """Return estimated primary and secondary paths."""
        conditions = [item.conditions[0] for item in self.estimated]
        return [(condition.primary.real, condition.secondary.real) for condition in conditions]

    def quality(self, model: Model, taps: list[Float32]) -> dict[str, float]:
        """Score one filter per ear on the true paths: noise reduction (mean and worst ear) and amplification."""
        scored = [answer_or_raise(item) for item in predict_all(self.true, taps, model, is_true=True)]
        reductions = [item.mean_noise_reduction_db for item in scored]
        return {
            "noise_reduction_db": float(np.mean(reductions)),
            "worst_ear_db": float(np.min(reductions)),
            "amplification_db": float(np.mean([item.amplification_db for item in scored])),
            "n_ears": len(scored),
        }


def taps_of(designs: list[Design | SynthesisError]) -> list[Float32]:
    """Return the filters; raise the first error."""
    return [answer_or_raise(design).taps for design in designs]


def _float32(values: Any) -> Float32:
    return np.ascontiguousarray(np.asarray(values)[:MAX_SAMPLES], np.float32)
