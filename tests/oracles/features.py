"""Twin of the generator's twelve input channels (method, Generator; paper, Section 2.2)."""

import numpy as np

from tests.oracles import minimum_phase
from tests.oracles.path_ratio import floored_log


def standardised(values: np.ndarray) -> np.ndarray:
    """Zero mean and unit (population) standard deviation across frequency."""
    return (values - values.mean()) / values.std()


def unit(spectrum: np.ndarray) -> np.ndarray:
    """The unit phase z / |z|."""
    return spectrum / np.abs(spectrum)


def twelve_channels(
    primary: np.ndarray, secondary: np.ndarray, ratio: np.ndarray, log_base: np.ndarray
) -> np.ndarray:
    """Six ratio channels, then six path channels: [12, n_bins]."""
    u = unit(ratio)
    mismatch = u * np.conj(unit(minimum_phase.response(log_base)))
    u_p, u_s = unit(primary), unit(secondary)
    return np.array(
        [
            standardised(floored_log(np.abs(ratio))),
            np.linspace(-1, 1, len(ratio)),
            u.real,
            u.imag,
            mismatch.real,
            mismatch.imag,
            standardised(floored_log(np.abs(primary))),
            standardised(floored_log(np.abs(secondary))),
            u_p.real,
            u_p.imag,
            u_s.real,
            u_s.imag,
        ]
    )
