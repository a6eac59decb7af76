"""Twin of the paths' traits: plain NumPy over explicit frequencies, one band at a time."""

import numpy as np

N_FFT = 32_768
SECONDARY_BANDS = [(17, 20), (20, 23), (23, 26), (26, 29), (29, 32), (32, 35), (35, 38)] + [
    (n, n + 1) for n in range(38, 42)
]
PRIMARY_BANDS = [(17, 20), (20, 23), (23, 26)]


def _lower_edge_hz(n: int) -> float:
    return float(10 ** ((2 * n - 1) / 20))


def traits(primary: np.ndarray, secondary: np.ndarray, advance: int = 0) -> np.ndarray:
    """(ln |s_b|, arg s_b, ln |p_c|, arg p_c) of two responses."""
    f = np.arange(N_FFT // 2 + 1) * 48_000 / N_FFT
    found = []
    for response, bands, shift in ((secondary, SECONDARY_BANDS, advance), (primary, PRIMARY_BANDS, 0)):
        spectrum = np.fft.rfft(response, N_FFT) * np.exp(2j * np.pi * f * shift / 48_000)
        means = [
            np.mean(
                [x for x, hz in zip(spectrum, f, strict=True) if _lower_edge_hz(low) <= hz < _lower_edge_hz(high)]
            )
            for low, high in bands
        ]
        found += [np.log(np.abs(means)), np.angle(means)]
    return np.concatenate(found)
