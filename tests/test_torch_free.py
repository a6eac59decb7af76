"""What serving on a CPU imports: everything but torch."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = """
import sys
import numpy as np
import synthesis.backends
from model_store import ModelStore
from synthesis.calibration import calibrate
from synthesis.calibration_verdict import judge
from synthesis.path_estimation import Take
from synthesis.plausibility import SupportPrior

checkpoint = ModelStore().load("default")
assert checkpoint.parameters.weights
x, echo = np.random.default_rng(1).standard_normal((2, 30_000)).astype(np.float32)
takes = [Take(0.0, x, x + 0.01 * echo), Take(0.5, x, x - 0.5 * np.roll(x, 1))]
verdict = judge(calibrate(takes), SupportPrior(checkpoint.manifest.support_traits))
assert verdict.reasons
loaded = sorted(name for name in ("torch", "scipy", "pandas", "numba", "fastapi") if name in sys.modules)
print(",".join(loaded) or "none")
"""


def test_loading_and_calibrating_import_neither_torch_nor_scipy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("none", 0), done.stderr
