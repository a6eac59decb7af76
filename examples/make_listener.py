"""Write the example listener: simulated paths, a simulated calibration of them, and a request ready to be posted.

    python examples/make_listener.py

`listener.json` is what an earphone knows after its calibration: both paths as impulse responses, and the coherence
of its two microphones. `true_paths.npz` is what it does not know, for scoring the design.

Needs pip install -e '.[training]'
"""

import json
from pathlib import Path

import numpy as np

from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.simulated_calibration import simulate_calibration

FOLDER = Path(__file__).resolve().parent
SEED = 2048
SNR_DB = 40.0  # of the probe at the microphone, in a quiet room


def main() -> None:
    """Simulate, calibrate, write both files."""
    pair = simulate_listeners(1, SEED).pairs[0]
    estimate = simulate_calibration([pair], simulated_noise(SEED), snr_db=SNR_DB, seed=SEED)
    request = {
        "primary": {"impulse_response": rounded(estimate.primary[0].numpy(), ".6g")},
        "secondary": {"impulse_response": rounded(estimate.secondary[0].numpy(), ".6g")},
        "coherence": rounded(estimate.coherence[0].numpy(), ".5f"),
        "sample_rate": 48_000,
    }
    text = json.dumps(request, separators=(",", ":"))
    (FOLDER / "listener.json").write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
    np.savez(
        FOLDER / "true_paths.npz",
        primary=pair.primary.astype(np.float32),
        secondary=pair.secondary.astype(np.float32),
    )
    for name in ("listener.json", "true_paths.npz"):
        print(f"{FOLDER / name}: {(FOLDER / name).stat().st_size / 1000:.0f} kB")


def rounded(values: np.ndarray, form: str) -> list[float]:
    """Values rounded to the digits of that format."""
    return [float(format(value, form)) for value in values]


if __name__ == "__main__":
    main()
