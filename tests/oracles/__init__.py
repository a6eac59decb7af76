"""Float64 twins of the core package in NumPy and SciPy, one case at a time, from the method's equations.

They are slow and dense on purpose: where the package uses an FFT, a twin builds the matrix; where the package
folds a cepstrum, a twin takes a Hilbert transform. None imports the package, so an error in one does not hide
in the other. Signals are one-dimensional float64 arrays, spectra one-sided complex128 arrays of
`n_fft // 2 + 1` bins at 48 kHz.
"""
