"""A client of the PRIME-ANC service: paths in, filter out, as NumPy arrays.

    from prime_anc.client import Client

    with Client("http://127.0.0.1:8000") as client:
        design = client.refine(primary, secondary, k=1, coherence=coherence)
    design.taps, design.prediction.mean_noise_reduction_db, design.prediction.noise_reduction_db  # per band

or from recordings of both microphones:

    calibration = client.calibrate([Take(0, x, e), Take(0.35, x_played, e_played)])
    design = client.refine(calibration, k=1)

one filter for several ways of wearing:

    design = client.refine([Condition(closed, label="closed"), Condition(pressed, label="pressed")])

the measured effect of a running filter, and coefficients for a chip:

    found = client.verify(design, [Recording(x, e)], [Recording(x_on, e_on)], calibration)
    header = client.export(design, {"n_sections": 6, "number_format": "q1.23"}, calibration, file="c")

Answers are those of `prime_anc.answers`.
"""

from prime_anc.client.bodies import Condition
from prime_anc.client.client import Client
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
from prime_anc.client.recordings import DriveTake, Recording, Take

__all__ = [
    "Client",
    "ClientError",
    "Condition",
    "DriveTake",
    "InvalidRequest",
    "NotReached",
    "OverQuota",
    "Recording",
    "Refused",
    "ServiceFault",
    "Take",
    "Unauthorised",
    "Unavailable",
    "UnknownAnswer",
    "UnknownModel",
    "UnusablePaths",
]
