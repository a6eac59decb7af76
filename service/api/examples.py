"""Examples for the OpenAPI document: of bodies here, of answers from the marks in their types."""

from __future__ import annotations

from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from prime_anc.method.conventions import N_TAPS

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Example:
    """Marks a type with a value of it."""

    value: Any


def example(kind: Any) -> Any:
    """Make an example of a type from its marks; what is not required and has none is left out."""
    marks = [item.value for item in getattr(kind, "__metadata__", ()) if isinstance(item, Example)]
    if marks:
        return marks[-1]
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True).items()
        return {name: example(hint) for name, hint in hints if not _is_left_out(hint)}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return [example(arguments[0])]
    if origin is Literal:
        return arguments[0]
    if origin in (Annotated, NotRequired, Union, UnionType):
        return example(arguments[0])
    assert kind is bool, f"{kind} has no example"
    return True


def _is_left_out(hint: Any) -> bool:
    if get_origin(hint) is not NotRequired:
        return False
    return not any(isinstance(item, Example) for item in getattr(get_args(hint)[0], "__metadata__", ()))


PATHS: Json = {
    "primary": {"impulse_response": [0.0, 0.0, 0.0, 0.5, 0.25, -0.125]},
    "secondary": {"impulse_response": [0.0, 0.9, -0.3, 0.1]},
    "sample_rate": 48_000,
}
CONDITIONS: Json = {
    "conditions": [
        {name: PATHS[name] for name in ("primary", "secondary")} | {"label": label, "weight": weight}
        for label, weight in (("closed", 2.0), ("pressed", 1.0))
    ],
    "sample_rate": 48_000,
}

EVALUATE_BODY: Json = PATHS | {"fir": {"taps": [0.5, 0.25] + [0.0] * (N_TAPS - 2)}}
HYBRID_BODY: Json = PATHS | {"k": 1, "controller": {"n_sections": 4, "sample_rate": 192_000.0, "latency_us": 10.0}}
VERIFY_BODY: Json = EVALUATE_BODY | {
    "takes": [
        {"state": state, "x": {"float32": "zczMPQ=="}, "e": {"float32": "zcxMPQ=="}} for state in ("off", "on")
    ]
}
EXPORT_BODY: Json = EVALUATE_BODY | {"target": {"form": "sos", "n_sections": 6, "number_format": "q1.23"}}
TAKES: Json = {
    "takes": [
        {"gain": 0.0, "x": {"wav": "UklGRjZYBABXQVZF"}, "e": {"wav": "UklGRjZYBABXQVZF"}},
        {"gain": 0.35, "x": {"float32": "zczMPQAAAL8="}, "e": {"float32": "CtcjPc3MTL4="}},
    ],
    "sample_rate": 48_000,
}


def _named(**values: Json) -> Json:
    """Examples as FastAPI takes them."""
    return {name.replace("_", " "): {"value": value} for name, value in values.items()}


DESIGN_BODIES = _named(impulse_responses=PATHS, two_conditions=CONDITIONS)
HYBRID_BODIES = _named(both=HYBRID_BODY)
EVALUATE_BODIES = _named(a_filter=EVALUATE_BODY)
VERIFY_BODIES = _named(two_takes_abridged=VERIFY_BODY)
EXPORT_BODIES = _named(six_biquads_of_24_bits=EXPORT_BODY)
CALIBRATION_BODIES = _named(two_takes_abridged=TAKES)
