"""Verification of a running filter by recordings with it off and on: measurement, diagnosis and trim."""

from prime_anc.measure.verify.blocks import MIN_SAMPLES, StateTake
from prime_anc.measure.verify.diagnosis import (
    BEYOND_A_TRIM,
    RIGHT,
    Deviation,
    diagnose,
    foreign_prediction,
    is_better,
)
from prime_anc.measure.verify.measurement import Verification, interval_of_medians, verify
from prime_anc.measure.verify.trim import changed_path, path_found, path_now, shifted_filter

__all__ = [
    "BEYOND_A_TRIM",
    "MIN_SAMPLES",
    "RIGHT",
    "Deviation",
    "StateTake",
    "Verification",
    "changed_path",
    "diagnose",
    "foreign_prediction",
    "interval_of_medians",
    "is_better",
    "path_found",
    "path_now",
    "shifted_filter",
    "verify",
]
