"""Write the workbench's example listener: two ears drawn from what the default model's listeners have in common.

    python scripts/make_example.py

No person's measurement: the mean of the bundled model's prior, plus random amounts of its principal directions.
"""

import base64
import json
from pathlib import Path

import numpy as np

from model_store.store import BUNDLED_ROOT, ModelStore
from synthesis.path_prior import PathDistribution

FILE = Path(__file__).resolve().parents[1] / "workbench" / "example.json"
SEED = 3
AMOUNT = 0.7
N_COHERENCE_BINS = 1025


def main() -> None:
    """Draw both ears and write them."""
    prior = ModelStore(BUNDLED_ROOT, include_bundled=False).load("default").parameters.path_prior
    assert prior is not None
    random = np.random.default_rng(SEED)
    ears = {
        side: {
            "primary": packed(drawn(prior.primary, random)),
            "secondary": packed(drawn(prior.secondary, random)[:2048]),
            "coherence": packed(np.full(N_COHERENCE_BINS, 0.9995)),
        }
        for side in ("left ear", "right ear")
    }
    FILE.write_text(json.dumps(ears))
    print(f"{FILE}: {FILE.stat().st_size / 1000:.0f} kB")


def drawn(path: PathDistribution, random: np.random.Generator) -> np.ndarray:
    """A causal response."""
    amounts = AMOUNT * random.standard_normal(len(path.directions))
    response: np.ndarray = np.fft.irfft(path.mean + amounts @ path.directions)
    return response


def packed(samples: np.ndarray) -> dict[str, str]:
    """Little-endian float32 in base64."""
    return {"float32": base64.b64encode(samples.astype("<f4").tobytes()).decode()}


if __name__ == "__main__":
    main()
