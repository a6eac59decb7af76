"""How far simulated listeners resemble measured ones: `python -m studies.resemblance --data DIR --noise DIR`.

Delays, spread, and what three designs reach: filters are designed from calibrated estimates and scored on the true
paths, both data sets with the same noises.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from studies.scoring import spectral_scores
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.minimum_phase import minimum_phase_fir, minimum_phase_response
from synthesis.octave_bands import AMP_BANDS
from synthesis.path_ratio import log_base_magnitude, regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.spectra import band_matrix
from synthesis.wiener import design_wmmse
from training.datasets.noise import NoiseSet, read_noise, reference_psd
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import PathDataset
from training.datasets.simulated import simulate_listeners
from training.simulated_calibration import simulate_calibration

DELAY_BAND_HZ = (50.0, 5000.0)
_DELAYS_SAMPLES = np.arange(-8.0, 16.0, 0.02)


def compare_with(dataset: PathDataset, noise_set: NoiseSet) -> pd.DataFrame:
    """`dataset` beside as many simulated listeners, a line for each figure.

    Noise reduction: mean over the ears. Excess delay: lowest, median and highest over the ears. Spread: SD of band
    levels over listeners, relative to the measured one, mean over the 23 bands.
    """
    sides = {"measured": dataset, "simulated": simulate_listeners(len(dataset.listeners), seed=0)}
    return pd.DataFrame(
        {name: _noise_reduction(side, noise_set) | _paths(side, dataset) for name, side in sides.items()}
    )


def excess_delays(responses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Delay of impulse responses [n, 8192] beyond their minimum phase, in samples: [n].

    The all-pass part of a response is compared with a pure delay over 50 Hz to 5 kHz: the delay of the best
    match, ``argmax_tau Re sum_k A_k exp(2 pi i f_k tau)``, to 0.02 samples.
    """
    spectra = np.fft.rfft(responses, 4 * responses.shape[-1])
    minimum_phase = minimum_phase_response(torch.from_numpy(np.log(np.abs(spectra)))).numpy()
    frequency_hz = np.fft.rfftfreq(4 * responses.shape[-1], 1 / SAMPLE_RATE_HZ)
    scored = (frequency_hz >= DELAY_BAND_HZ[0]) & (frequency_hz < DELAY_BAND_HZ[1])
    turns = np.outer(frequency_hz[scored], _DELAYS_SAMPLES) / SAMPLE_RATE_HZ
    match = ((spectra / minimum_phase)[:, scored] @ np.exp(2j * np.pi * turns)).real
    best: NDArray[np.float64] = _DELAYS_SAMPLES[match.argmax(axis=-1)]
    return best


def band_levels_db(responses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean power of impulse responses [n, n_samples] in the 23 AMP bands, dB: [n, 23]."""
    n_fft = 4 * responses.shape[-1]
    membership = band_matrix(AMP_BANDS, n_fft).numpy()
    power = np.abs(np.fft.rfft(responses, n_fft)) ** 2
    levels: NDArray[np.float64] = 10 * np.log10(power @ membership / membership.sum(axis=0))
    return levels


def _stacked(dataset: PathDataset, path: str) -> NDArray[np.float64]:
    return np.stack([getattr(pair, path) for pair in dataset.pairs])


def _noise_reduction(dataset: PathDataset, noise_set: NoiseSet) -> dict[str, float]:
    """Mean noise reduction of the full-band base at window 4096, the held-band base and WMMSE at 8192."""
    truth = AcousticPaths.from_impulse_responses(
        torch.from_numpy(_stacked(dataset, "primary")), torch.from_numpy(_stacked(dataset, "secondary"))
    )
    psd = torch.from_numpy(reference_psd(noise_set))

    def scored(taps: torch.Tensor) -> float:
        return float(np.mean([score["noise_reduction_db"] for score in spectral_scores(truth, taps, psd)]))

    estimates = {}
    for window in (4096, 8192):
        estimate = simulate_calibration(dataset.pairs, noise_set, window=window)
        estimates[window] = AcousticPaths.from_impulse_responses(estimate.primary, estimate.secondary)
    full = log_base_magnitude(regularised_ratio(estimates[4096]), "full_band")
    held = log_base_magnitude(regularised_ratio(estimates[8192]), "held_band")
    return {
        "ratio base, full band, window 4096, NR dB": scored(minimum_phase_fir(full)),
        "ratio base, held band, window 8192, NR dB": scored(minimum_phase_fir(held)),
        "WMMSE, window 8192, NR dB": scored(design_wmmse(estimates[8192], psd)),
    }


def _paths(dataset: PathDataset, measured: PathDataset) -> dict[str, float]:
    """Excess delays and spread of both paths."""
    found = {}
    for path in ("primary", "secondary"):
        delays = excess_delays(_stacked(dataset, path))
        for name, of_ears in (("least", np.min), ("median", np.median), ("largest", np.max)):
            found[f"{path}, {name} excess delay, samples"] = float(of_ears(delays))
        found[f"{path}, spread"] = _spread_ratio(measured, dataset, path)
    return found


def _spread_ratio(measured: PathDataset, dataset: PathDataset, path: str) -> float:
    """SD of the band levels over the measured one; over listeners within an ear, mean over bands and ears."""
    ratios = []
    for ear in sorted({pair.ear for pair in measured.pairs}):
        deviations = []
        for each in (dataset, measured):
            of_ear = np.array([pair.ear == ear for pair in each.pairs])
            deviations.append(band_levels_db(_stacked(each, path)[of_ear]).std(axis=0, ddof=1))
        ratios.append(deviations[0] / deviations[1])
    return float(np.mean(ratios))


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="any level of the PANDAR database")
    parser.add_argument("--noise", type=Path, required=True, help="folder of 48-kHz noises")
    request = parser.parse_args(arguments)
    print(compare_with(read_pandar(request.data), read_noise(request.noise)).round(2).to_string())


if __name__ == "__main__":
    main()
