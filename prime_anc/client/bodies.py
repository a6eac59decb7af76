"""Bodies of requests about ears and filters, from the arguments of the client's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from prime_anc.answers import CalibrationAnswer, DesignAnswer, ExportAnswer, document
from prime_anc.client.options import BESIDES, given
from prime_anc.options import ObjectiveFields

Fields = Mapping[str, Any]

# Members of a request that are one condition's.
_OF_CONDITION = ("primary", "secondary", *BESIDES)


@dataclass(frozen=True, eq=False)
class Condition:
    """A seating, sound direction or way of wearing that a filter must serve."""

    # Path as in `Client.synthesize`, or a calibration, which replaces both paths and the coherence.
    primary: ArrayLike | CalibrationAnswer
    secondary: ArrayLike | None = None
    coherence: ArrayLike | None = None
    # Unknown over known power, as of a calibration, [62].
    uncertainty: ArrayLike | None = None
    # Path from loudspeaker to outer microphone, of the same kind as the others; default: the calibration's.
    feedback: ArrayLike | None = None
    # Weight above 0, relative to the others.
    weight: float = 1.0
    label: str = ""

    def fields(self) -> dict[str, Any]:
        """Return what a request has of it; raises ValueError if that is too little or too much."""
        one, known = self, self.primary
        if isinstance(known, CalibrationAnswer):
            if one.secondary is not None or one.coherence is not None:
                raise ValueError("secondary, coherence: a calibration includes them; omit them")
            paths = {name: getattr(known, name) for name in ("primary", "secondary", "feedback")}
            paths = {name: path.impulse_response for name, path in paths.items() if path is not None}
            paths |= {} if one.feedback is None else {"feedback": one.feedback}
            one = replace(one, coherence=known.coherence, uncertainty=known.uncertainty, **paths)
        elif one.secondary is None:
            raise ValueError("secondary: missing; give both paths or a calibration")
        fields = {name: getattr(one, name) for name in _OF_CONDITION}
        return {name: np.asarray(value) for name, value in fields.items() if value is not None}


# Besides arrays: one ear, or several conditions, 1 to 16, for which one filter is designed.
Ear = CalibrationAnswer | Condition | Sequence[CalibrationAnswer | Condition]


def about_ear(
    primary: ArrayLike | Ear,
    secondary: ArrayLike | None,
    options: Fields,
    names: tuple[str, ...],
    stability_only: Sequence[Condition] = (),
) -> dict[str, Any]:
    """Build a request for one ear, or several conditions, from the arguments of a method."""
    body = given(options, names)
    besides = {name: body.pop(name) for name in BESIDES if name in body}
    ears: list[Any] = [primary]
    if are_several := isinstance(primary, list | tuple) and any(
        isinstance(one, CalibrationAnswer | Condition) for one in primary
    ):
        ears = list(primary)
    if not are_several and not isinstance(primary, Condition):
        ears = [Condition(primary, secondary, **besides)]  # type: ignore[arg-type]
    elif besides or secondary is not None:
        raise ValueError(f"{', '.join(besides) or 'secondary'}: a condition includes it; omit it")
    conditions = [one if isinstance(one, Condition) else Condition(one) for one in ears]
    if "sign" not in body:
        signs = {one.primary.sign for one in conditions if isinstance(one.primary, CalibrationAnswer)}
        if len(signs) > 1:
            raise ValueError(
                "conditions: the calibrations have different signs; give `sign`, or calibrate all with the same"
            )
        body["sign"] = next(iter(signs), None)
    if not are_several and not stability_only:
        return body | conditions[0].fields()
    served = [one.fields() | {"weight": one.weight, "label": one.label} for one in conditions]
    stable = [one.fields() | {"label": one.label, "stability_only": True} for one in stability_only]
    return body | {"conditions": served + stable}


def about_filter(
    taps: ArrayLike | DesignAnswer | ExportAnswer,
    primary: ArrayLike | Ear,
    secondary: ArrayLike | None,
    options: Fields,
    names: tuple[str, ...],
) -> dict[str, Any]:
    """Build a request for a filter on an ear; a design or an export includes what was chosen for it."""
    if not isinstance(taps, DesignAnswer | ExportAnswer):
        return about_ear(primary, secondary, options, names) | {"fir": np.asarray(taps)}
    own = {"sign": taps.sign, "controller": document(taps.controller), "latency_samples": taps.latency_samples}
    known = {name: value for name, value in options.items() if value is not None}
    if isinstance(taps, DesignAnswer):
        fir: Any = taps.fir
        own |= {item.name: getattr(taps, item.name) for item in fields(ObjectiveFields) if item.name in names}
    else:  # as lists: tensors would round to float32
        coefficients = {name: getattr(taps.coefficients, name) for name in ("taps", "sos", "sample_rate")}
        fir = {name: np.asarray(item).tolist() for name, item in coefficients.items() if item is not None}
    return about_ear(primary, secondary, own | known, names) | {"fir": fir}
