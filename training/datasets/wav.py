"""WAV files as float64, strictly: 48 kHz, whole, finite."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import wavfile

from training.datasets.path_pairs import DatasetError, check_sample_rate


def read_wav(file: Path, content: bytes) -> NDArray[np.float64]:
    """Samples of a WAV file in 16, 24 or 32 bit or float.

    Args:
        file: its name, for messages.
        content: its bytes.

    Returns:
        Float64 [n_samples, n_channels]; integers scaled so that full scale is 1, floats as they are.

    Raises:
        DatasetError: no whole WAV file, another rate than 48 kHz, another sample format, NaN or infinity.
    """
    try:
        with warnings.catch_warnings():
            # A file cut short is read with a mere warning; chunks of metadata are none of our business.
            warnings.simplefilter("ignore", wavfile.WavFileWarning)
            warnings.filterwarnings("error", message="Reached EOF", category=wavfile.WavFileWarning)
            rate_hz, data = wavfile.read(io.BytesIO(content))
    except Exception as error:  # damaged headers surface as struct.error, UnboundLocalError and others
        raise DatasetError(
            f"{file}: found {len(content)} bytes that are no whole WAV file ({type(error).__name__}: {error})"
        ) from error
    check_sample_rate(rate_hz, str(file))
    if data.dtype.kind not in "if":
        raise DatasetError(f"{file}: found samples of type {data.dtype}, expected 16-, 24-, 32-bit or float")
    # SciPy left-justifies 24 bits in 32, so the container's full scale is the file's.
    full_scale = -float(np.iinfo(data.dtype).min) if data.dtype.kind == "i" else 1.0
    samples = np.asarray(data, dtype=np.float64).reshape(len(data), -1) / full_scale
    if not np.isfinite(samples).all():
        raise DatasetError(f"{file}: some samples are NaN or infinite")
    return samples
