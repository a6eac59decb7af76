"""The ears that designs are timed on: what a service would be sent, and the truth that the filter is judged by."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from service.designs import Float32
from service.formats import wire
from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths
from training.datasets import open_dataset
from training.datasets.noise import read_noise, simulated_noise
from training.measurements import Measurements

WINDOW = 8192
N_SIMULATED_LISTENERS = 8
QUICK_EARS = 4


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which data to measure on."""
    parser.add_argument(
        "--data", type=Path, help="folder that holds the PANDAR database; without it, simulated ears"
    )
    parser.add_argument(
        "--noise", type=Path, help="folder of noise recordings (default: DATA/noise, else simulated)"
    )


def chosen(options: argparse.Namespace) -> Ears:
    """The ears that a command asks for: all of the data, or a few for `--quick`. Errors as `measure`."""
    if options.quick:
        return Ears.of(measure(options, n_listeners=2), QUICK_EARS)
    return Ears.of(measure(options))


def measure(options: argparse.Namespace, n_listeners: int = N_SIMULATED_LISTENERS) -> Measurements:
    """Read or simulate paths and noises and calibrate every original ear; says so where anything is simulated.

    Raises DatasetError for data that are not there or cannot be used.
    """
    noise_folder = options.noise
    if noise_folder is None and options.data is not None and (options.data / "noise").is_dir():
        noise_folder = options.data / "noise"
    noise = read_noise(noise_folder) if noise_folder else simulated_noise()
    if options.data:
        dataset = open_dataset("pandar", options.data)
    else:
        dataset = open_dataset("simulated", n_listeners=n_listeners)
    for what, simulated in (
        ("ears: --data names no measured ones", dataset.is_simulated),
        ("noise", noise.is_simulated),
    ):
        if simulated:
            print(f"SIMULATED {what}; quality below is not that of measured ears", file=sys.stderr, flush=True)
    return Measurements.calibrate(dataset, noise, window=WINDOW, conditions="original")


@dataclass(frozen=True)
class Ears:
    """Original ears, in order, each by its place.

    primary, secondary: estimated impulse responses, float32 [n_ears, samples]. true: their true paths, complex128.
    reference_psd: mean square per bin, float64 [bins]. data: what must be said beside the figures.
    """

    names: tuple[str, ...]
    primary: Float32
    secondary: Float32
    true: AcousticPaths
    reference_psd: Tensor
    data: dict[str, Any]

    @classmethod
    def of(cls, measurements: Measurements, n_ears: int | None = None) -> Ears:
        """All original ears of the measurements, or the first `n_ears`."""
        dataset, estimates = measurements.dataset, measurements.estimates
        places = [i for i, pair in enumerate(measurements.pairs) if pair.condition == "original"][:n_ears]
        return cls(
            names=tuple(f"{measurements.pairs[i].listener}/{measurements.pairs[i].ear}" for i in places),
            primary=estimates.primary[places].numpy().astype(np.float32),
            secondary=estimates.secondary[places].numpy().astype(np.float32),
            true=measurements.true_paths(places, torch.float64),
            reference_psd=measurements.reference_psd,
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
        """Number of ears."""
        return len(self.names)

    def batch(self, number: int, size: int) -> list[int]:
        """Places of the ears of round `number`: each round begins one ear further on, and ears come round again."""
        return [(number + offset) % len(self) for offset in range(size)]

    @cached_property
    def bodies(self) -> list[bytes]:
        """A binary request body of each ear's impulse responses."""
        return [
            wire.encode(primary, secondary) for primary, secondary in zip(self.primary, self.secondary, strict=True)
        ]

    @cached_property
    def estimated(self) -> AcousticPaths:
        """The estimates on the design grid, complex128 [n_ears, bins]."""
        primary, secondary = (torch.from_numpy(each).double() for each in (self.primary, self.secondary))
        return AcousticPaths.from_impulse_responses(primary, secondary)

    def quality(self, places: list[int], taps: Tensor) -> dict[str, float]:
        """What filters [n, taps] of those ears do on the true paths, for the reference spectrum, uncertainty none.

        noise_reduction_db: mean over ears of the mean over bands; worst_ear_db: of the worst ear. Amplification
        likewise, a mean of what is louder, in the scored bands and from 20 Hz to 20 kHz.
        """
        paths = AcousticPaths(self.true.primary[places], self.true.secondary[places])
        none = torch.zeros(len(WIDE_BANDS), dtype=torch.float64)
        found = predict(paths, taps.cpu().double(), self.reference_psd, uncertainty=none)
        return {
            "noise_reduction_db": float(found.mean_noise_reduction_db.mean()),
            "worst_ear_db": float(found.mean_noise_reduction_db.min()),
            "amplification_db": float(found.amplification_db.mean()),
            "wide_amplification_db": float(found.wide_amplification_db.mean()),
            "control_rms": float(found.control_rms.mean()),
            "n_ears": len(places),
        }
