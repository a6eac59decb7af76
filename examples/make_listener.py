"""Write the example listener anew, in place: paths like those of the default model's listeners, and their calibration.

    python examples/make_listener.py

Not a person's measurement: both ears are the mean of the bundled model's prior plus random amounts of its principal
directions. `listener.json` is the calibration of the left ear, ready to be posted;
`prime_anc/cli/example_ear.npz` has the true paths, for scoring and for `prime-anc example`;
`service/page/example.json` holds both ears for the page.

Needs pip install -e '.[training]'
"""

import argparse
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import fftconvolve

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.estimate import GainTake
from prime_anc.measure.prior import PathDistribution
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.noise import simulated_noise
from training.datasets.path_pairs import EarSide, PathPair
from training.simulated_calibration import simulate_calibration

FOLDER = Path(__file__).resolve().parent
PAGE_FILE = FOLDER.parent / "service" / "page" / "example.json"
TRUE_PATHS = FOLDER.parent / "prime_anc" / "cli" / "example_ear.npz"
SEED = 3
AMOUNT = 0.7  # SD of the random amounts; listeners have 1
SNR_DB = 40.0  # SNR of the probe at the microphone, in a quiet room
SECONDS = 8  # per recording
COHERENCE_STEP = 8  # spacing of the bins in the page's file


def main() -> None:
    """Draw, calibrate and write the files."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    prior = ModelStore(BUNDLED_ROOT, include_bundled=False).load("bose-qc20").parameters.path_prior
    assert prior is not None
    random = np.random.default_rng(SEED)
    sides: tuple[EarSide, ...] = ("left", "right")
    pairs = [
        PathPair(
            "example", side, "original", "normal", drawn(prior.primary, random), drawn(prior.secondary, random)
        )
        for side in sides
    ]
    priors = {"example": prior}
    estimate = simulate_calibration(pairs, simulated_noise(SEED), snr_db=SNR_DB, seed=SEED, priors=priors)
    request = {
        "primary": {"impulse_response": rounded(estimate.primary[0].numpy(), ".6g")},
        "secondary": {"impulse_response": rounded(estimate.secondary[0].numpy(), ".6g")},
        "coherence": rounded(estimate.coherence[0].numpy(), ".5f"),
        "sample_rate": 48_000,
    }
    text = json.dumps(request, separators=(",", ":"))
    (FOLDER / "listener.json").write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
    np.savez(
        TRUE_PATHS,
        primary=pairs[0].primary.astype(np.float32),
        secondary=pairs[0].secondary.astype(np.float32),
    )
    PAGE_FILE.write_text(json.dumps({f"{pair.ear} ear": calibrated(pair, random) for pair in pairs}))
    for file in (FOLDER / "listener.json", TRUE_PATHS, PAGE_FILE):
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def drawn(path: PathDistribution, random: np.random.Generator) -> np.ndarray:
    """Draw a causal response of 8192 samples."""
    amounts = AMOUNT * random.standard_normal(len(path.directions))
    return np.fft.irfft(path.mean + amounts @ path.directions)


def calibrated(pair: PathPair, random: np.random.Generator) -> dict[str, Any]:
    """Calibrate an ear from recordings of white noise, as for a device that no model knows."""
    noise = random.standard_normal(SECONDS * SAMPLE_RATE_HZ)
    takes = []
    for gain in (0.0, 0.35):
        error = fftconvolve(noise, pair.primary - gain * pair.secondary)[: len(noise)]
        error += 10 ** (-SNR_DB / 20) * error.std() * random.standard_normal(len(noise))
        takes.append(GainTake(gain, noise, error))
    found = calibrate(takes)
    return {
        "primary": packed(found.estimate.primary),
        "secondary": packed(found.estimate.secondary),
        "coherence": packed(found.estimate.coherence[::COHERENCE_STEP]),
        "uncertainty": packed(found.uncertainty.ravel()),
    }


def rounded(values: np.ndarray, form: str) -> list[float]:
    """Round values to the digits of a format."""
    return [float(format(value, form)) for value in values]


def packed(samples: np.ndarray) -> dict[str, str]:
    """Encode little-endian float32 in base64."""
    return {"float32": base64.b64encode(samples.astype("<f4").tobytes()).decode()}


if __name__ == "__main__":
    main()
