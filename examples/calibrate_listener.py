"""Calibrate a listener through the running service, design the filter from the answer, and score it.

    python examples/calibrate_listener.py --data PANDAR_FOLDER --noise NOISE_FOLDER --listener person-02

Eight noises are recorded at both ears, first with the loudspeaker off and then with a plain gain in place of the
control filter. The recordings go to /calibrate as one binary body, its answer goes to /refine unchanged, and the
filter is scored in the time domain on the true paths, which the service never receives. `--snr-db` and `--reversed`
add faults, which the verdict should name. Without folders, listener and noises are simulated; the bundled model was
trained on neither.

Needs pip install -e '.[training]'
"""

import argparse
import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from prime_anc_client import Take, wire
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import PathPair
from training.datasets.simulated import simulate_listeners
from training.scoring import TimeDomainScore

GAIN = 0.35
N_SAMPLES = 4 * 48_000


def main() -> None:
    """Print verdict, and predicted and scored noise reduction, per ear."""
    options = parse()
    noise = read_noise(options.noise) if options.noise else simulated_noise()
    dataset = read_pandar(options.data) if options.data else simulate_listeners(1)
    score = TimeDomainScore(noise)
    for pair in dataset.of([options.listener or dataset.listeners[0]]):
        takes = recordings(pair, noise, options.snr_db, options.reversed)
        calibration = post(f"{options.url}/calibrate", wire.encode_takes(takes), wire.MEDIA_TYPE)
        verdict = calibration["verdict"]
        print(f"{pair.listener}, {pair.ear}: {'passed' if verdict['passed'] else 'NOT passed'}")
        for finding in verdict["reasons"]:
            print(f"  {finding['code']}: {finding['detail']}")
        for finding in verdict["not_judged"]:
            print(f"  {finding['code']} not judged: {finding['detail']}")
        design = post(f"{options.url}/refine?k=1", json.dumps(calibration).encode(), "application/json")
        (scored,) = score(pair, torch.tensor(design["fir"])[None])
        print(
            f"  noise reduction {design['prediction']['mean_noise_reduction_db']:.1f} dB predicted, "
            f"{scored.noise_reduction_db:.1f} dB scored; amplification {scored.amplification_db:.3f} dB; "
            f"{calibration['timings_ms']['estimate']:.0f} ms for the estimate"
        )


def recordings(pair: PathPair, noise: NoiseSet, snr_db: float | None, is_reversed: bool) -> list[Take]:
    """Return both microphones' signals in both states; white noise lies `snr_db` below the error signals."""
    rng = np.random.default_rng(0)
    takes = []
    for gain in (0.0, GAIN):
        applied = -gain if is_reversed else gain
        path = pair.primary - applied * np.pad(pair.secondary, (0, len(pair.primary) - len(pair.secondary)))
        for x in noise.signals[: noise.n_recordings, :N_SAMPLES]:
            e: NDArray[np.float64] = fftconvolve(x, path)[:N_SAMPLES]
            if snr_db is not None:
                e = e + 10 ** (-snr_db / 20) * e.std() * rng.standard_normal(N_SAMPLES)
            takes.append(Take(gain, x.astype(np.float32), e.astype(np.float32)))
    return takes


def post(url: str, body: bytes, media_type: str) -> dict[str, Any]:
    """POST a body; the answer is JSON."""
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": media_type})) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the PANDAR database (default: simulated paths)")
    parser.add_argument("--noise", type=Path, help="folder of noise recordings (default: simulated)")
    parser.add_argument("--listener", help="for example person-02 (default: the first)")
    parser.add_argument("--snr-db", type=float, help="signal-to-noise ratio at the error microphone")
    parser.add_argument("--reversed", action="store_true", help="reverse the loudspeaker while calibrating")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
