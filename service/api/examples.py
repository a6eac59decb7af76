"""Examples for the OpenAPI document: of bodies here, of answers from the marks in their types."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from prime_anc.fields import Example
from prime_anc.method.conventions import N_TAPS

Json = dict[str, Any]


def example(kind: Any) -> Any:
    """Make an example of a type from its marks; what is not required and has none is left out."""
    marks = [item.value for item in getattr(kind, "__metadata__", ()) if isinstance(item, Example)]
    if marks:
        return marks[-1]
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        optional = {field.name for field in fields(kind) if field.default is None}
        return {name: example(hint) for name, hint in hints.items() if name not in optional or _is_marked(hint)}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return [example(arguments[0])]
    if origin is Literal:
        return arguments[0]
    if origin in (Annotated, Union, UnionType):
        return example(arguments[0])
    assert kind is bool, f"{kind} has no example"
    return True


def _is_marked(hint: Any) -> bool:
    """Return whether a field that may be absent has an example."""
    inner = get_args(get_args(hint)[0])[0]
    return any(isinstance(item, Example) for item in getattr(inner, "__metadata__", ()))


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
