"""What a held-out listener is calibrated with where recordings are held out too: probes and measurement noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import fingerprint
from training.datasets.splits import Split
from training.datasets.synthetic_noise import AIRPLANE, airplane_noise, synthetic_noise

N_SYNTHETIC = 16
"""Synthetic noises that train beside the support recordings."""

AIRPLANE_SEED = 1
SNRS_DB = (None, 40.0, 20.0)


@dataclass(frozen=True, eq=False)
class Probe:
    """One way of calibrating: every signal of `noises` is a probe. snr_db: see `simulate_calibration`."""

    name: str
    noises: NoiseSet
    snr_db: float | None


def support_noises(noise: NoiseSet, recordings: tuple[str, ...], seed: int) -> NoiseSet:
    """What may train: these recordings and synthetic noises, all of them probes; white and pink are for scoring."""
    return joined(noise.of(recordings), synthetic_noise(N_SYNTHETIC, seed))


def query_noises(noise: NoiseSet, split: Split) -> NoiseSet:
    """What scores: the recordings that the split holds out, white and pink."""
    return noise.of(split.query_recordings, ("white", "pink"))


def query_probes(noise: NoiseSet, split: Split) -> list[Probe]:
    """White, pink, the held-out recordings together and each alone, and an airplane's cabin; each at every SNR."""
    held_out = split.query_recordings
    airplane = replace(
        noise.of(held_out[:1]), names=(AIRPLANE,), signals=airplane_noise(AIRPLANE_SEED)[None], fingerprint=AIRPLANE
    )
    sets = {name: noise.of((name,)) for name in ("white", "pink")}
    sets |= {"pool": noise.of(held_out)} | {name: noise.of((name,)) for name in held_out} | {AIRPLANE: airplane}
    return [Probe(name, noises, snr_db) for name, noises in sets.items() for snr_db in SNRS_DB]


def joined(first: NoiseSet, second: NoiseSet) -> NoiseSet:
    """The recordings of two sets as one, cut to the shorter."""
    n_samples = min(first.signals.shape[1], second.signals.shape[1])
    parts = (first, second)
    return NoiseSet(
        names=tuple(name for each in parts for name in each.names[: each.n_recordings]),
        signals=np.concatenate([each.signals[: each.n_recordings, :n_samples] for each in parts]),
        n_recordings=first.n_recordings + second.n_recordings,
        fingerprint=fingerprint([(each.fingerprint, b"") for each in parts]),
        is_simulated=first.is_simulated,
    )
