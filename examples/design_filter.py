"""Design the example listener's filter through a running service, score it on the true paths, and draw both.

    python examples/design_filter.py --url http://127.0.0.1:8000 --picture noise_reduction.png

The service gets the paths that a calibration has estimated (`listener.json`). Pink noise through the true paths
(`cli/example_ear.npz`) then measures the filter, beside the Wiener filter (WMMSE) from the same estimates.

Needs SciPy and Matplotlib: pip install -e '.[training]'
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from first_design import LISTENER, design
from numpy.typing import NDArray
from scipy.signal import fftconvolve, welch

mpl.use("Agg")
import matplotlib.pyplot as plt

TRUE_PATHS = LISTENER.parents[1] / "cli" / "example_ear.npz"
SAMPLE_RATE_HZ = 48_000
BANDS = range(17, 40)  # one-third octaves 50 Hz to 8 kHz: mid-bands at 10 ** (n / 10) Hz
N_MEAN_BANDS = 21  # the mean is taken over 50 Hz to 5 kHz

Signal = NDArray[np.float64]
DESIGNS: dict[str, tuple[dict[str, Any], int]] = {
    "generator": ({}, 0),
    "generator + 1 update": ({}, 1),
    "WMMSE": ({"method": "wmmse"}, 0),
}


def pink_noise(seconds: float = 10.0) -> Signal:
    """Generate noise with equal power per octave above 20 Hz, the same at every call."""
    n = int(seconds * SAMPLE_RATE_HZ)
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(n))
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(np.fft.rfftfreq(n, 1 / SAMPLE_RATE_HZ), 20)), n)


def listen(reference: Signal, primary: Signal, secondary: Signal, fir: Signal) -> tuple[Signal, Signal]:
    """Return disturbance d = p * x and error e = d - s * w * x at the ear, after 0.5 s."""
    disturbance = fftconvolve(reference, primary)[: len(reference)]
    control = fftconvolve(reference, fir)[: len(reference)]
    error = disturbance - fftconvolve(control, secondary)[: len(reference)]
    settled = slice(SAMPLE_RATE_HZ // 2, None)
    return disturbance[settled], error[settled]


def noise_reduction_db(disturbance: Signal, error: Signal) -> Signal:
    """Compute the level without the filter minus that with it per one-third octave (dB); positive is quieter."""
    frequency_hz, without = welch(disturbance, SAMPLE_RATE_HZ, nperseg=32_768)
    _, with_filter = welch(error, SAMPLE_RATE_HZ, nperseg=32_768)
    reductions = []
    for n in BANDS:
        low_hz, high_hz = 10 ** ((n - 0.5) / 10), 10 ** ((n + 0.5) / 10)
        band = (frequency_hz >= low_hz) & (frequency_hz < high_hz)
        reductions.append(10 * np.log10(without[band].sum() / with_filter[band].sum()))
    return np.array(reductions)


def draw(centre_hz: list[float], predicted: Signal, scored: dict[str, Signal], picture: Path) -> None:
    """Draw noise reduction per band: the refined filter's prediction as bars, the filters' scores as lines."""
    position = np.arange(len(centre_hz))
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    axes.bar(position, predicted, color="0.85", label="generator + 1 update, predicted")
    for (name, reductions), style in zip(scored.items(), ("C2.:", "C0o-", "C3s--"), strict=True):
        mean_db = reductions[:N_MEAN_BANDS].mean()
        axes.plot(position, reductions, style, markersize=4, label=f"{name}, scored: {mean_db:.1f} dB")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(position, [f"{hz / 1000:g}k" if hz >= 1000 else f"{hz:g}" for hz in centre_hz], rotation=45)
    axes.set(
        xlabel="one-third octave band, Hz",
        ylabel="noise reduction, dB",
        title="The example listener: predicted from estimates, scored on the true paths (mean 50 Hz to 5 kHz)",
    )
    axes.title.set_fontsize(10)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(picture, dpi=120)


def main() -> None:
    """Design, score, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--picture", type=Path, default=Path("noise_reduction.png"))
    options = parser.parse_args()

    request = json.loads(LISTENER.read_text(encoding="utf-8"))
    true_paths = np.load(TRUE_PATHS)
    reference = pink_noise()
    answers = {
        name: design(options.url.rstrip("/"), request | extra, n_updates)
        for name, (extra, n_updates) in DESIGNS.items()
    }
    scored = {
        name: noise_reduction_db(
            *listen(reference, true_paths["primary"], true_paths["secondary"], np.array(answer["fir"]))
        )
        for name, answer in answers.items()
    }
    print(f"{'design':22}  predicted  scored   (mean noise reduction, 50 Hz to 5 kHz, dB)  core time, ms")
    for name, answer in answers.items():
        predicted_db = answer["prediction"]["mean_noise_reduction_db"]
        core_ms = answer["timings_ms"]["core"]
        print(f"{name:22}  {predicted_db:9.1f}  {scored[name][:N_MEAN_BANDS].mean():6.1f}  {core_ms:53.2f}")
    refined = answers["generator + 1 update"]["prediction"]
    draw(refined["band_centre_hz"], np.array(refined["noise_reduction_db"]), scored, options.picture)
    print(f"The picture: {options.picture}")


if __name__ == "__main__":
    main()
