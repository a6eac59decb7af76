"""Synthesis of active-noise-control filters from a listener's acoustic paths.

A feedforward earphone hears the reference x outside the ear and the error e inside it. With the primary path p,
the secondary path s and the control filter w,

    d = p * x,    e = d - s * w * x,    ideally W = P / S,

which is neither causal nor bounded in general. A filter is made in these steps:

1. `path_ratio`: W_reg = P S* / (|S|^2 + eps^2) and the magnitude base A_base = |W_reg|          (Eq. 4)
2. `features`, `generator`: a network reads twelve channels and corrects log A_base by Delta (Eq. 5), or the
   weight and the penalty of a causal Wiener filter
3. `minimum_phase`: the real cepstrum supplies the phase, and samples 0 to 2047 are the filter; or `fir_wiener`:
   2048 taps by weighted least squares, with `conjugate_gradients` on a `toeplitz` system
4. `gauss_newton`: a few updates lower the log residual J on the estimated paths           (Section 3.2)
5. `noise_reduction`: what the filter will do, honest about what the estimates cannot know

`path_estimation` turns recordings into paths (Eqs. 1-2), `denoising` frees a secondary path from measurement noise,
`calibration` and `calibration_verdict` say how far the paths can be trusted, against what `support_statistics`
learnt; `wiener` is the least-squares reference (Eq. 7); `synthesizer` joins the steps, `cuda_graph` records them,
`cpu` makes them fast without a GPU and `gpu` with one. Everything is batched in the first dimension and runs in
float32 or float64. P, S, W: spectra; p, s, w: impulse responses; A: a magnitude; u: a unit phase; k: a Fourier bin;
b or n: a one-third-octave band; w_k (omega): reference power in bin k.
"""

from synthesis.errors import InvalidOption, InvalidPaths, NonFiniteFilter, SynthesisError
from synthesis.gauss_newton import FAST, FINE, PAPER, PROFILES, Refinement, RefinementProfile
from synthesis.generator import Generator, GeneratorConfig
from synthesis.noise_reduction import Prediction
from synthesis.paths import AcousticPaths, ControlFilter, resample_spectrum
from synthesis.synthesizer import METHODS, Synthesizer

__all__ = [
    "FAST",
    "FINE",
    "METHODS",
    "PAPER",
    "PROFILES",
    "AcousticPaths",
    "ControlFilter",
    "Generator",
    "GeneratorConfig",
    "InvalidOption",
    "InvalidPaths",
    "NonFiniteFilter",
    "Prediction",
    "Refinement",
    "RefinementProfile",
    "SynthesisError",
    "Synthesizer",
    "resample_spectrum",
]
