"""Synthesis of active-noise-control filters from a listener's acoustic paths.

A feedforward earphone measures the reference x outside the ear and the error e inside it. With the primary path p,
the secondary path s and the control filter w,

    d = p * x,    e = d - s * w * x,    ideally W = P / S,

which in general is neither causal nor bounded. A filter is designed in five steps:

1. `path_ratio`: W_reg = P S* / (|S|^2 + eps^2) and the magnitude base A_base = |W_reg|          (Eq. 4)
2. `features`, `generator`: from twelve channels of features a network predicts a correction: `prime` (the paper's)
   Delta of log A_base (Eq. 5), `prime-log` one of the weight v and the penalty l of a causal Wiener filter
3. the first filter. `prime`: `minimum_phase`, whose real cepstrum gives the phase, and samples 0 to 2047 are the
   taps. `prime-log`: `fir_wiener`, the 2048 taps that minimise sum_k v_k |P_k - S_k W_k|^2 + l_k |W_k|^2, by
   `conjugate_gradients` on a `toeplitz` system
4. `gauss_newton`: a few updates lower the log residual J, the mean over bands of ln(power of e / power of d) and
   terms for the worst band and the ceiling on |W|, on the estimated paths (Section 3.2)
5. `noise_reduction`: the predicted effect, with the uncertainty of the estimates (`estimate_uncertainty`)

`synthesizer` joins the steps in torch, in float32 or float64, batched in the first dimension and differentiable.
`backends` runs them behind one interface of NumPy arrays: `reference` (this code), `cpu`, `cuda`. The rest is in
NumPy: `path_estimation` turns recordings into paths (Eqs. 1-2), under the statistics of earlier listeners' paths
(`path_prior`); `unheard_bins` completes paths where the noise of their calibration was silent; `denoising` removes
measurement noise from a secondary path; `calibration` and `calibration_verdict` state how far the paths can be
trusted, and `plausibility` which mistake explains paths that are unlike those of the listeners that a model was
trained on, its support (`support_statistics`).
`wiener` is the least-squares reference (Eq. 7).

Symbols: P, S, W: spectra; p, s, w: impulse responses; A: a magnitude; u: a unit phase; k: a Fourier bin; b or n: a
one-third-octave band; w_k: reference power in bin k.
"""
