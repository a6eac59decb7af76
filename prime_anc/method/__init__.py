"""Synthesis of active-noise-control filters from a listener's acoustic paths.

A feedforward earphone measures the reference x outside the ear and the error e inside it. With the primary path p,
the secondary path s and the control filter w,

    d = p * x,    e = d - s * w * x,    ideally W = P / S,

which in general is neither causal nor bounded. `theory.md` states the method: symbols, numbered equations and their
files. `design` is the method on one page. `start` and `updates` have its two numerical halves in torch, in float32 or
float64, batched in the first dimension and differentiable; `backends` runs them on a CPU or a GPU. `prime_anc.core` has
the same in C, and all other steps. Beside them stand

- `loops`: controllers, and the loops that filters and controllers close
- `unknown`: what is not known of paths as they were sent
- `support`: which mistake explains paths that are unlike those of the listeners that a model was trained on
"""
