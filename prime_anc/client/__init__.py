"""A client of the PRIME-ANC service: paths in, filter out, as NumPy arrays.

    from prime_anc.client import Client

    with Client("http://127.0.0.1:8000") as client:
        design = client.refine(primary, secondary, k=1, coherence=coherence)
    design.taps, design.prediction.mean_noise_reduction_db, design.prediction.noise_reduction_db  # per band

or from recordings of both microphones:

    calibration = client.calibrate([Take(0, x, e), Take(0.35, x_played, e_played)])
    design = client.refine(calibration, k=1)

one filter for several ways of wearing:

    design = client.refine_conditions([Condition(closed, label="closed"), Condition(pressed, label="pressed")])

the measured effect of a running filter, and coefficients for a chip:

    found = client.verify(design, [Recording(x, e)], [Recording(x_on, e_on)], calibration)
    header = client.export(design, {"n_sections": 6, "number_format": "q1.23"}, calibration, file="c")

Requires NumPy, httpx and `prime_anc.options`, the declaration of the options.
"""

from prime_anc.client.answers import (
    ConditionEffect,
    DesignResult,
    EvaluationResult,
    LoopResult,
    PredictionResult,
    Realisation,
    WarningCode,
)
from prime_anc.client.calibration import Bands, CalibrationResult, DriveTake, FindingResult, Take, VerdictResult
from prime_anc.client.client import Client, Condition
from prime_anc.client.errors import (
    ClientError,
    InvalidRequest,
    NotReached,
    OverQuota,
    Refused,
    ServiceFault,
    Unauthorised,
    Unavailable,
    UnknownAnswer,
    UnknownModel,
    UnusablePaths,
)
from prime_anc.client.verification import Recording, Trim, VerificationResult

__all__ = [
    "Bands",
    "CalibrationResult",
    "Client",
    "ClientError",
    "Condition",
    "ConditionEffect",
    "DesignResult",
    "DriveTake",
    "EvaluationResult",
    "FindingResult",
    "InvalidRequest",
    "LoopResult",
    "NotReached",
    "OverQuota",
    "PredictionResult",
    "Realisation",
    "Recording",
    "Refused",
    "ServiceFault",
    "Take",
    "Trim",
    "Unauthorised",
    "Unavailable",
    "UnknownAnswer",
    "UnknownModel",
    "UnusablePaths",
    "VerdictResult",
    "VerificationResult",
    "WarningCode",
]
