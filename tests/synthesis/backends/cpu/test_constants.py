"""The core's constants are those of the method."""

import re
from pathlib import Path

import pytest

from synthesis import (
    arrays,
    conventions,
    features,
    fir_wiener,
    generator_config,
    path_ratio,
    plausibility,
    prediction,
    profiles,
    toeplitz,
    wiener,
)
from synthesis.backends.cpu import build
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS
from synthesis.types import MAX_CONDITIONS

METHOD = {
    **dict.fromkeys(("SAMPLE_RATE_HZ", "N_TAPS", "DESIGN_N_FFT", "N_BINS"), conventions),
    **dict.fromkeys(("HELD_LOW_HZ", "HELD_HIGH_HZ"), path_ratio),
    **dict.fromkeys(("PHASE_FLOOR", "AUDIBLE_HZ"), features),
    **dict.fromkeys(("SUFFICIENT_DECREASE", "DAMPING_FLOOR", "LEAST_CEILING"), profiles),
    **dict.fromkeys(("MOST_CEILING", "MAX_UPDATES", "SILENCE", "UNKNOWN_WEIGHT", "LOUDEST_UNKNOWN"), profiles),
    **dict.fromkeys(("LATE_FROM_SAMPLES", "END_OF_RESPONSE", "COHERENCE_SHARE", "MODEL_BOUND"), prediction),
    **dict.fromkeys(("NATURAL_SPREAD", "PLAUSIBLE_RANGE"), prediction),
    **dict.fromkeys(("SURPRISE", "CONVINCING", "REALIGN_BEYOND", "MAX_DISTANCE"), plausibility),
    "TAPER": toeplitz,
    "MAGNITUDE_FLOOR": arrays,
    "TINY": arrays,
    "CEILING_SHARPNESS": fir_wiener,
    "DRIVE_LIMIT": fir_wiener,
    "COHERENCE_FLOOR": conventions,
    "NEPER_PER_DB": generator_config,
}
RENAMED = {
    "FIRST_BAND": WIDE_BANDS[0],
    "N_BANDS": len(WIDE_BANDS),
    "NR_FIRST": NR_BANDS[0] - WIDE_BANDS[0],
    "NR_COUNT": len(NR_BANDS),
    "AMP_FIRST": AMP_BANDS[0] - WIDE_BANDS[0],
    "AMP_COUNT": len(AMP_BANDS),
    "RATIO_REGULARISATION": path_ratio.REGULARISATION,
    "SYMBOL_DAMPING": fir_wiener.DAMPING,
    "WIENER_ITERATIONS": fir_wiener.N_ITERATIONS,
    "N_STEP_SCALES": len(profiles.STEP_SCALES),
    "WMMSE_REGULARISATION": wiener.REGULARISATION,
    "MAX_CONDITIONS": MAX_CONDITIONS,
    "INTERVAL_UNCERTAINTY_DB": prediction.INTERVAL_DB["uncertainty"],
    "INTERVAL_COHERENCE_DB": prediction.INTERVAL_DB["coherence"],
}


def test_the_core_has_the_methods_constants() -> None:
    text = (Path(build.SOURCES) / "method.h").read_text()
    found = {name: float(value.rstrip("f")) for name, value in re.findall(r"#define (\w+) ([-\d.e]+f?)", text)}
    expected = {name: float(getattr(module, name)) for name, module in METHOD.items()} | RENAMED
    assert found == pytest.approx(expected, rel=1e-7)
