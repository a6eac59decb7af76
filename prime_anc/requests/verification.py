"""Body of `/verify`: a filter, the paths that it was designed for, and recordings with it off and on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from prime_anc.fields import Absent
from prime_anc.measure.calibration import MAX_SAMPLES
from prime_anc.measure.verify import MIN_SAMPLES, StateTake
from prime_anc.method.bands import AMP_BANDS
from prime_anc.requests.arrays import check_some_taps
from prime_anc.requests.bodies import EvaluateBody
from prime_anc.requests.errors import RequestError
from prime_anc.requests.strict import StrictModel
from prime_anc.requests.takes import MAX_TAKES, ClippedShare, Signal, read_clipped_share, read_signal

_MEMBERS = '{"state", "x", "e"}'


def _recordings(value: object) -> list[StateTake]:
    """Read 2 to 64 takes, at least one per state; RequestError names the take."""
    if not isinstance(value, list) or not 2 <= len(value) <= MAX_TAKES:
        raise RequestError("out-of-range", f"takes: send a list of 2 to {MAX_TAKES} takes", "takes")
    found = [_recording(item, f"takes.{number}") for number, item in enumerate(value)]
    for is_on, name in ((False, "off"), (True, "on")):
        if all(item.is_on is not is_on for item in found):
            raise RequestError("invalid-field", f"takes: none has the state {name}; record one", "takes")
    return found


def _recording(value: object, field: str) -> StateTake:
    if not isinstance(value, dict) or set(value) - {"clipped_share"} != {"state", "x", "e"}:
        raise RequestError("invalid-field", f"{field}: send {_MEMBERS}", field)
    if value["state"] not in ("off", "on"):
        raise RequestError("invalid-field", f"{field}.state: send off or on", f"{field}.state")
    x, e = (read_signal(value[name], f"{field}.{name}") for name in ("x", "e"))
    if len(x) != len(e):
        found = f"x has {len(x)} samples and e has {len(e)}"
        raise RequestError("invalid-field", f"{field}: {found}; send as many of both", field)
    if not MIN_SAMPLES <= len(x) <= MAX_SAMPLES:
        found = f"there are {len(x)} samples; send {MIN_SAMPLES} to {MAX_SAMPLES}"
        raise RequestError("out-of-range", f"{field}: {found}", field)
    clipped = read_clipped_share(value.get("clipped_share"), ("x", "e"), field)
    return StateTake(value["state"] == "on", x, e, clipped)


def _prediction(value: object) -> dict[str, Any]:
    """Read the compared parts of a prediction: `noise_reduction_db` and `mean_noise_reduction_db`.

    `max_gain_db`, if present, distinguishes it from another filter's.
    """
    given = value if isinstance(value, dict) else {}
    bands, mean, largest = (
        given.get(name) for name in ("noise_reduction_db", "mean_noise_reduction_db", "max_gain_db")
    )
    is_whole = isinstance(bands, list) and len(bands) == len(AMP_BANDS)
    if not is_whole or not all(type(band) in (int, float) and abs(band) < 1e3 for band in (*bands, mean)):  # type: ignore[misc]
        raise RequestError(
            "invalid-field",
            f"prediction: send that of /refine or /evaluate, with its {len(AMP_BANDS)} bands and their mean",
            "prediction",
        )
    is_known = type(largest) in (int, float) and abs(largest) < 1e3  # type: ignore[arg-type]
    return {"bands": bands, "mean": float(mean), "max_gain_db": largest if is_known else None}  # type: ignore[arg-type]


class VerifyTake(StrictModel):
    """A recording in one state."""

    state: Literal["off", "on"]
    x: Signal
    """Reference microphone."""
    e: Signal
    """Error microphone."""
    clipped_share: Absent[ClippedShare] = None


class VerifyBody(EvaluateBody):
    """Body of `/verify`."""

    takes: Annotated[
        Any,
        PlainValidator(
            _recordings,
            json_schema_input_type=Annotated[list[VerifyTake], Field(min_length=2, max_length=MAX_TAKES)],
        ),
    ]
    """Recordings of both microphones while the noise plays, at least one with the filter `off` and one with it
    `on`. x: reference microphone; e: error microphone."""
    prediction: Annotated[Any, PlainValidator(_prediction, json_schema_input_type=dict[str, Any])] = None
    """That of the filter's answer; without it the filter is predicted again from the paths."""

    def check(self) -> None:
        """Check what the other fields need, and that the filter does something."""
        super().check()
        check_some_taps(self.fir)
