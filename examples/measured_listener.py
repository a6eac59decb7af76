"""Design filters for a measured listener through the running service, and score them on the true paths.

    python examples/measured_listener.py --data PANDAR_FOLDER --noise NOISE_FOLDER --listener person-02 \
        --model pandar-prime-log-split00-seed0

The listener's calibration is simulated, both estimated paths and their coherence are POSTed with the model's name,
and the answer is scored in the time domain on the true paths, which the service never sees. A model that
was trained on the listener is marked: its figures say nothing about others.
"""

import argparse
import json
import urllib.request
from pathlib import Path
from typing import Any

import torch

from training.datasets.noise import read_noise
from training.datasets.pandar import read_pandar
from training.measurements import Measurements
from training.scoring import TimeDomainScore

DESIGNS = (("prime", 0), ("prime", 1), ("prime", 3), ("wmmse", 0))


def main() -> None:
    """Print one line per ear and design: predicted and scored noise reduction, and the service's core time."""
    options = parse()
    dataset = read_pandar(options.data)
    noise = read_noise(options.noise)
    measurements = Measurements.calibrate(dataset, noise, window=8192, conditions="original")
    score = TimeDomainScore(noise)
    if not measurements.indices((options.listener,)):
        raise SystemExit(f"{options.data} has no listener {options.listener}; name a folder in it, as in person-02")
    support = fetch(f"{options.url}/models/{options.model}")["support"]
    note = "IN SUPPORT: the model was trained on this listener" if options.listener in support else "held out"
    print(f"{options.listener}, model {options.model} ({note})")
    print(f"{'ear':6} {'design':14} {'predicted':>10} {'scored':>8} {'AMP':>7} {'late cut':>9} {'core ms':>8}")
    for index in measurements.indices((options.listener,)):
        pair = measurements.pairs[index]
        for method, k in DESIGNS:
            answer = fetch(f"{options.url}/refine?k={k}", request(measurements, index, options.model, method))
            (scored,) = score(pair, torch.tensor(answer["fir"])[None])
            prediction = answer["prediction"]
            print(
                f"{pair.ear:6} {f'{method} k={k}':14} {prediction['mean_noise_reduction_db']:10.2f} "
                f"{scored.noise_reduction_db:8.2f} {scored.amplification_db:7.3f} "
                f"{scored.late_cut_noise_reduction_db:9.2f} {answer['timings_ms']['core']:8.2f}"
            )


def request(measurements: Measurements, index: int, model: str, method: str) -> dict[str, Any]:
    """Compose the body that a fitting app would send: estimates and their coherence, without the true paths."""
    estimates = measurements.estimates
    return {
        "primary": {"impulse_response": estimates.primary[index].tolist()},
        "secondary": {"impulse_response": estimates.secondary[index].tolist()},
        "coherence": estimates.coherence[index].tolist(),
        "sample_rate": 48_000,
        "model": model,
        "method": method,
    }


def fetch(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """GET, or POST a body as JSON."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--noise", type=Path, required=True)
    parser.add_argument("--listener", required=True, help="as in person-02")
    parser.add_argument("--model", default="bose-qc20")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
