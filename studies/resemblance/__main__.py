"""How far simulated listeners resemble measured ones: `python -m studies.resemblance --data DIR --noise DIR`.

Delays, spread, and what three designs reach: filters are designed from calibrated estimates and scored on the true
paths, both data sets with the same noises.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
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


class Resemblance(TypedDict):
    """Measured beside simulated.

    ratio_base_*, wmmse_*: mean noise reduction in dB over the ears, 21 bands.
    excess_delay_*: lowest, median and highest over the ears, in samples.
    band_spread_ratio_*: simulated over measured SD of band levels over listeners, mean over the 23 bands.
    """

    ratio_base_full_4096_db: tuple[float, float]
    ratio_base_held_8192_db: tuple[float, float]
    wmmse_8192_db: tuple[float, float]
    excess_delay_primary: tuple[tuple[float, float, float], tuple[float, float, float]]
    excess_delay_secondary: tuple[tuple[float, float, float], tuple[float, float, float]]
    band_spread_ratio_primary: float
    band_spread_ratio_secondary: float


def compare_with(dataset: PathDataset, noise_set: NoiseSet) -> Resemblance:
    """Compare `dataset` with as many simulated listeners."""
    simulated = simulate_listeners(len(dataset.listeners), seed=0)
    sides = [_figures(side, noise_set) for side in (dataset, simulated)]
    spreads = {name: _spread_ratio(dataset, simulated, name) for name in ("primary", "secondary")}
    return Resemblance(
        ratio_base_full_4096_db=(sides[0][0], sides[1][0]),
        ratio_base_held_8192_db=(sides[0][1], sides[1][1]),
        wmmse_8192_db=(sides[0][2], sides[1][2]),
        excess_delay_primary=(_delay_range(dataset, "primary"), _delay_range(simulated, "primary")),
        excess_delay_secondary=(_delay_range(dataset, "secondary"), _delay_range(simulated, "secondary")),
        band_spread_ratio_primary=float(spreads["primary"].mean()),
        band_spread_ratio_secondary=float(spreads["secondary"].mean()),
    )


def table(resemblance: Resemblance) -> str:
    """The comparison as lines of text."""

    def delays(values: tuple[float, float, float]) -> str:
        return " / ".join(f"{value:.2f}" for value in values)

    lines = [f"{'':44}{'measured':>20}{'simulated':>20}"]
    for label, (measured, simulated) in (
        ("ratio base, full band, window 4096, NR dB", resemblance["ratio_base_full_4096_db"]),
        ("ratio base, held band, window 8192, NR dB", resemblance["ratio_base_held_8192_db"]),
        ("WMMSE direct, window 8192, NR dB", resemblance["wmmse_8192_db"]),
    ):
        lines.append(f"{label:44}{measured:20.2f}{simulated:20.2f}")
    for label, (measured_delays, simulated_delays) in (
        ("primary excess delay, samples, min/med/max", resemblance["excess_delay_primary"]),
        ("secondary excess delay, samples, min/med/max", resemblance["excess_delay_secondary"]),
    ):
        lines.append(f"{label:44}{delays(measured_delays):>20}{delays(simulated_delays):>20}")
    for label, ratio in (
        ("spread of the primary, SD over SD", resemblance["band_spread_ratio_primary"]),
        ("spread of the secondary, SD over SD", resemblance["band_spread_ratio_secondary"]),
    ):
        lines.append(f"{label:44}{1:20.2f}{ratio:20.2f}")
    return "\n".join(lines)


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


def _figures(dataset: PathDataset, noise_set: NoiseSet) -> tuple[float, float, float]:
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
    return (
        scored(minimum_phase_fir(full)),
        scored(minimum_phase_fir(held)),
        scored(design_wmmse(estimates[8192], psd)),
    )


def _delay_range(dataset: PathDataset, path: str) -> tuple[float, float, float]:
    delays = excess_delays(_stacked(dataset, path))
    return float(delays.min()), float(np.median(delays)), float(delays.max())


def _spread_ratio(measured: PathDataset, simulated: PathDataset, path: str) -> NDArray[np.float64]:
    """Simulated over measured SD of the band levels, [23]; over listeners within an ear, mean over ears."""
    ratios = []
    for ear in sorted({pair.ear for pair in measured.pairs}):
        deviations = []
        for dataset in (simulated, measured):
            of_ear = np.array([pair.ear == ear for pair in dataset.pairs])
            deviations.append(band_levels_db(_stacked(dataset, path)[of_ear]).std(axis=0, ddof=1))
        ratios.append(deviations[0] / deviations[1])
    mean: NDArray[np.float64] = np.mean(ratios, axis=0)
    return mean


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="any level of the PANDAR database")
    parser.add_argument("--noise", type=Path, required=True, help="folder of 48-kHz noises")
    request = parser.parse_args(arguments)
    print(table(compare_with(read_pandar(request.data), read_noise(request.noise))))


if __name__ == "__main__":
    main()
