"""Synthesis of active-noise-control filters from a listener's acoustic paths.

A feedforward earphone measures the reference x outside the ear and the error e inside it. With the primary path p,
the secondary path s and the control filter w,

    d = p * x,    e = d - s * w * x,    ideally W = P / S,

which in general is neither causal nor bounded. A filter is designed in five steps:

1. `path_ratio`: W_reg = P S* / (|S|^2 + eps^2) and the magnitude base A_base = |W_reg|          (Eq. 4)
2. `features`, `generator`: from twelve channels of features a network predicts a correction. That of `prime`, the
   paper's generator, is Delta, added to log A_base (Eq. 5); that of `prime-log` changes the weight v and the
   penalty l of a causal Wiener filter
3. the first filter. `prime`: `minimum_phase` finds the phase by the real cepstrum; samples 0 to 2047 of the
   response are the taps. `prime-log`: `fir_wiener`, the 2048 taps that minimise
   sum_k v_k |P_k - S_k W_k|^2 + l_k |W_k|^2, by `conjugate_gradients` on a `toeplitz` system
4. `gauss_newton`: on the estimated paths, a few updates lower the log residual J: the mean over bands of
   ln(power of e / power of d), plus terms for the worst bands and for |W| above its ceiling (Section 3.2)
5. `band_sums`, `prediction`: the predicted effect, given the uncertainty of the estimates

`synthesizer` joins the steps in torch, in float32 or float64, batched in the first dimension and differentiable.
`backends` runs them behind one interface of NumPy arrays: `reference` (this code), `cpu`, `cuda`. `wiener` is the
least-squares reference (Eq. 7). The rest is in NumPy:

- `unknown_bands`: bands of which a measurement says nothing
- `plausibility`: which mistake explains paths that are unlike those of a model's support, the listeners that it was
  trained on (`support_statistics`)

Symbols: P, S, W: spectra; p, s, w: impulse responses; A: a magnitude; u: a unit phase; k: a Fourier bin; b or n: a
one-third-octave band; w_k: reference power in bin k.
"""
