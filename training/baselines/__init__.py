"""Methods to compare a trained generator with: `design(paths)` returns taps, `fit` reads the support beforehand."""
