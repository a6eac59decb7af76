"""Simulate a two-state calibration (eqs. 1-2) of a pair of true paths.

The recordings of a noise set are the probes. The error microphone records the disturbance alone (``W = 0``: ``e_0 = p *
x``) and then with a plain gain as control filter (``W = g``: ``e_g = p * x - g s * x``). As in the paper the paths stay
fixed and the probe repeats from one state to the next. Beyond the paper, measurement noise can be added; without it a
calibration flatters every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from torch import Tensor

from prime_anc.measure.estimate import REGULARISATION, GainTake, PathEstimate, estimate_paths
from prime_anc.measure.posterior import Estimate, estimate
from prime_anc.measure.prior import PathPrior
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import MAX_PATH_SAMPLES, DatasetError, PathPair, named_seed

PROBE_GAIN = 0.35
N_OFFSETS, MIN_OFFSETS = 6, 4
FIRST_SAMPLE = 8192  # from here on even the longest path has settled
LAST_SAMPLE = 4 * SAMPLE_RATE_HZ
_PAIRS_AT_ONCE = 8  # bounds the memory: about 13 MB a pair at window 8192


@dataclass(frozen=True)
class SimulatedEstimate:
    """`prime_anc.measure.estimate.PathEstimate` in tensors: [n_pairs, taps] twice, then [n_pairs, 16385]."""

    primary: Tensor
    secondary: Tensor
    coherence: Tensor

    @classmethod
    def of(cls, estimate: PathEstimate) -> SimulatedEstimate:
        """Convert the estimate of several pairs."""
        arrays = [getattr(estimate, field.name) for field in fields(cls)]
        tensors: list[Any] = [None if values is None else torch.from_numpy(values) for values in arrays]
        return cls(*tensors)

    @classmethod
    def joined(cls, parts: Sequence[SimulatedEstimate]) -> SimulatedEstimate:
        """Concatenate the pairs of several estimates."""
        columns = zip(*(part.values() for part in parts), strict=True)
        joined: list[Any] = [None if column[0] is None else torch.cat(column) for column in columns]
        return cls(*joined)

    def at(self, indices: Sequence[int]) -> SimulatedEstimate:
        """Select some of the pairs."""
        chosen: list[Any] = [None if value is None else value[indices] for value in self.values()]
        return SimulatedEstimate(*chosen)

    def values(self) -> list[Any]:
        """Return the tensors, in the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]


def simulate_calibration(
    pairs: Sequence[PathPair],
    noise_set: NoiseSet,
    *,
    window: int = 8192,
    probes: Sequence[int] | None = None,
    primary_taps: int = 8192,
    secondary_taps: int = 2048,
    regularisation: float = REGULARISATION,
    snr_db: float | None = None,
    seed: int = 0,
    n_samples: int = LAST_SAMPLE,
    prior: PathPrior | None = None,
) -> SimulatedEstimate:
    """Calibrate pairs with the recordings of a noise set.

    Parameters
    ----------
    pairs
        True paths; the whole responses act, however long the estimates are.
    noise_set
        Its recordings (not white and pink) are the probes.
    window
        Samples of the Hann window, at most those of the take less the first 8192.
    probes
        Indices of the recordings; None for all.
    primary_taps, secondary_taps
        Lengths of the estimates, in samples.
    regularisation
        Regularisation of the pooled reference autospectrum, over its maximum; not negative.
    snr_db
        SNR of white noise at the error microphone, relative to its signal per probe and state, independent between
        probes and states; None for none.
    seed
        Seed of that noise; the pair's name is mixed in, so that noises are independent of the other pairs.
    n_samples
        Samples per take; four seconds have six windows, others in proportion, at least four.
    prior
        Prior of the device, under which paths are estimated as by `/calibrate`; None for the paper's estimate.

    Returns
    -------
    SimulatedEstimate
        Float64: primary [n_pairs, primary_taps], secondary [n_pairs, secondary_taps], coherence [n_pairs, 16385].

    Raises
    ------
    DatasetError
        The takes do not hold a window, or are longer than the recordings.
    """
    chosen = tuple(range(noise_set.n_recordings)) if probes is None else tuple(probes)
    if not FIRST_SAMPLE + window <= n_samples <= noise_set.signals.shape[1]:
        raise DatasetError(
            f"calibration: found a window of {window} samples in takes of {n_samples}, expected takes of "
            f"{FIRST_SAMPLE + window} to {noise_set.signals.shape[1]}"
        )
    offsets = tuple(window_offsets(window, n_samples))
    windows = _probe_windows(noise_set, window, chosen, offsets)
    parts = []
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        batch = pairs[start : start + _PAIRS_AT_ONCE]
        errors = _recorded(batch, windows, snr_db, seed)
        made = estimate_paths(
            _takes(windows, errors),
            window=window,
            primary_taps=primary_taps,
            secondary_taps=secondary_taps,
            n_offsets=len(offsets),
            first_sample=0,  # the takes consist of the windows' samples
            last_sample=len(offsets) * window,
            regularisation=regularisation,
        )
        if prior is not None:
            signals = noise_set.signals[list(chosen), :n_samples]
            posteriors = [_under_prior(pair, signals, prior, snr_db, named_seed(seed, pair.name)) for pair in batch]
            primary, secondary = (
                np.stack([getattr(item, name) for item in posteriors]) for name in ("primary", "secondary")
            )
            made = replace(made, primary=primary[:, :primary_taps], secondary=secondary[:, :secondary_taps])
        parts.append(SimulatedEstimate.of(made))
    return SimulatedEstimate.joined(parts)


def _under_prior(
    pair: PathPair, signals: NDArray[np.float64], prior: PathPrior, snr_db: float | None, seed: list[int]
) -> Estimate:
    """Record a pair with all probes, and estimate its paths under a prior."""
    rng, takes = np.random.default_rng(seed), []
    for signal in signals:
        disturbance, control = (fftconvolve(signal, path)[: len(signal)] for path in (pair.primary, pair.secondary))
        for gain in (0.0, PROBE_GAIN):
            error = disturbance - gain * control
            if snr_db is not None:
                level = np.sqrt(np.mean(error**2)) * 10 ** (-snr_db / 20)
                error = error + level * rng.standard_normal(len(error))
            takes.append(GainTake(gain, signal, error))
    return estimate(takes, prior=prior)


def _recorded(pairs: Sequence[PathPair], windows: _ProbeWindows, snr_db: float | None, seed: int) -> Tensor:
    """Simulate the error microphone in both states, [n_pairs, 2, n_probes, n_windows * window]."""
    disturbance = windows.through([pair.primary for pair in pairs])
    control = windows.through([pair.secondary for pair in pairs])
    errors = torch.stack([disturbance, disturbance - PROBE_GAIN * control], dim=1)
    return (
        errors if snr_db is None else _with_noise(errors, snr_db, [named_seed(seed, pair.name) for pair in pairs])
    )


def _takes(windows: _ProbeWindows, errors: Tensor) -> list[GainTake]:
    """Return the takes of both states with all probes."""
    return [
        GainTake(state, reference.flatten().numpy(), errors[:, i, probe].numpy())
        for i, state in enumerate((0.0, PROBE_GAIN))
        for probe, reference in enumerate(windows.samples)
    ]


def window_offsets(window: int, n_samples: int = LAST_SAMPLE) -> list[int]:
    """Return the first samples of a take's windows, equally spaced in [8192, n_samples - window]."""
    n_offsets = max(MIN_OFFSETS, round(N_OFFSETS * n_samples / LAST_SAMPLE))
    return [round(offset) for offset in np.linspace(FIRST_SAMPLE, n_samples - window, n_offsets).tolist()]


@dataclass(frozen=True)
class _ProbeWindows:
    """What the windows of the probes hold.

    Only the windowed samples enter an estimate, so only they are convolved: overlap-save, on the window and the
    8191 samples before it. That is the exact linear convolution at a sixth of the cost of four whole seconds.
    """

    # Float64 [n_probes, n_windows, window].
    samples: Tensor
    # One-sided spectra of the windows with their past, complex128 [n_probes, n_windows, n_fft // 2 + 1], n_fft from
    # `_frame_n_fft`.
    spectra: Tensor

    def through(self, responses: Sequence[NDArray[np.float64]]) -> Tensor:
        """Convolve the probes with responses of up to 8192 samples, [n_pairs, n_probes, n_windows * window]."""
        window = self.samples.shape[-1]
        n_fft, past = _frame_n_fft(window), MAX_PATH_SAMPLES - 1
        paths = torch.fft.rfft(_stacked(responses), n=n_fft)[:, None, None, :]
        return torch.fft.irfft(paths * self.spectra, n=n_fft)[..., past : past + window].flatten(2)


@lru_cache(maxsize=8)  # the same few windows and probes serve all sets of pairs
def _probe_windows(
    noise_set: NoiseSet, window: int, probes: tuple[int, ...], offsets: tuple[int, ...]
) -> _ProbeWindows:
    past = MAX_PATH_SAMPLES - 1
    signals = torch.from_numpy(noise_set.signals[list(probes)])
    frames = torch.stack([signals[:, offset - past : offset + window] for offset in offsets], dim=1)
    return _ProbeWindows(frames[..., past:].contiguous(), torch.fft.rfft(frames, n=_frame_n_fft(window)))


def _frame_n_fft(window: int) -> int:
    """Return the next of 2**k and 3 * 2**k that holds a window and the 8191 samples before it."""
    needed = window + MAX_PATH_SAMPLES - 1
    power = 1 << (needed - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= needed else power


def _stacked(responses: Sequence[np.ndarray]) -> Tensor:
    """Stack responses of any lengths as float64 [n_pairs, longest], zero-padded."""
    stacked = np.zeros((len(responses), max(response.size for response in responses)))
    for row, response in zip(stacked, responses, strict=True):
        row[: response.size] = response
    return torch.from_numpy(stacked)


def _with_noise(errors: Tensor, snr_db: float, seeds: Sequence[list[int]]) -> Tensor:
    """Add white noise to errors [n_pairs, 2, n_probes, n], `snr_db` below the mean square of the signal."""
    noise = np.stack([np.random.default_rng(seed).standard_normal(tuple(errors.shape[1:])) for seed in seeds])
    level = errors.square().mean(-1, keepdim=True).sqrt() * 10 ** (-snr_db / 20)
    return errors + level * torch.from_numpy(noise)
