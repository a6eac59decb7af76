"""Twin of the prediction: band energies of residual and disturbance, plus what the estimate cannot know."""

from dataclasses import dataclass

import numpy as np

from tests.oracles.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_sums

LOW_BANDS = range(13, 17)  # 20 Hz to 44.7 Hz
HIGH_BANDS = range(40, 44)  # 8.9 kHz to 20 kHz


@dataclass(frozen=True)
class Prediction:
    """All levels in dB: noise reduction positive is quieter, everything else positive is louder."""

    noise_reduction_db: np.ndarray
    mean_noise_reduction_db: float
    amplification_db: float
    out_of_band_low_db: float
    out_of_band_high_db: float
    wide_amplification_db: float
    max_gain_db: float
    control_rms: float


def response(taps: np.ndarray, n_bins: int) -> np.ndarray:
    """One-sided transform of the taps on the paths' grid."""
    return np.fft.rfft(taps, 2 * (n_bins - 1))


def predict(
    primary: np.ndarray,
    secondary: np.ndarray,
    taps: np.ndarray,
    reference_psd: np.ndarray,
    band_uncertainty: np.ndarray,
) -> Prediction:
    """A 31-band share of the disturbance joins both energies."""
    w = response(taps, len(primary))
    disturbance = reference_psd * np.abs(primary) ** 2
    residual = reference_psd * np.abs(primary - secondary * w) ** 2
    d, e = band_sums(WIDE_BANDS, disturbance), band_sums(WIDE_BANDS, residual)
    unknown = band_uncertainty * d
    d, e = d + unknown, e + unknown
    reduction = dict(zip(WIDE_BANDS, 10 * np.log10(d / e), strict=True))

    def louder(bands: range) -> float:
        return float(np.mean([max(-reduction[n], 0.0) for n in bands]))

    def change(bands: range) -> float:
        inside = [n in bands for n in WIDE_BANDS]
        return float(10 * np.log10(e[inside].sum() / d[inside].sum()))

    return Prediction(
        noise_reduction_db=np.array([reduction[n] for n in AMP_BANDS]),
        mean_noise_reduction_db=float(np.mean([reduction[n] for n in NR_BANDS])),
        amplification_db=louder(AMP_BANDS),
        out_of_band_low_db=change(LOW_BANDS),
        out_of_band_high_db=change(HIGH_BANDS),
        wide_amplification_db=louder(WIDE_BANDS),
        max_gain_db=float(20 * np.log10(np.abs(w).max())),
        control_rms=float(np.sqrt(np.sum(reference_psd * np.abs(w) ** 2))),
    )
