"""Options as keyword arguments, with the names, defaults and texts that `prime_anc.options` declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np

from prime_anc.client.wire import curve
from prime_anc.options import (
    DesignFields,
    FilterFields,
    ModelFields,
    ObjectiveFields,
    SynthesisFields,
    curve_kinds,
    option_schemas,
)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _names(*kinds: type) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for kind in kinds for field in fields(kind)))


# Arguments that are no options, with their texts.
BESIDE_OPTIONS = {
    "deadline_ms": "Time after which the answer is no longer needed.",
    "coherence": "Coherence per bin, 0 to 1.",
    "uncertainty": "Unknown over known power in 31 bands of both paths, as a calibration has it, [62].",
    "feedback": "Loudspeaker to outer microphone, of the same kind as the other paths.",
    "reference_psd": "Spectrum of the expected noise, mean square per bin; default: the model's.",
    "controller": "Feedback controller that runs beside the filter: a published one's name, or as `hybrid` returns it.",
}
# Those of one condition.
BESIDES = ("coherence", "uncertainty", "feedback")
SYNTHESIS = _names(SynthesisFields)
REFINEMENT = _names(DesignFields)
FILTER = _names(ModelFields, FilterFields)
EXPORT = (*FILTER, *_names(ObjectiveFields))


def takes_options(names: tuple[str, ...]) -> Callable[[_Method], _Method]:
    """Put options, and what a client takes beside them, into a method's signature and docstring.

    Parameters
    ----------
    names
        Names of the options that `**fields` stands for. `sign` is None by default: the calibration's or the design's,
        else the declared one.
    """

    def documented(method: _Method) -> _Method:
        schemas, signature = option_schemas(), inspect.signature(method)
        texts = {name: schemas[name]["description"] for name in names}
        if "primary" in signature.parameters:
            texts |= {name: text for name, text in BESIDE_OPTIONS.items() if name not in signature.parameters}
        defaults = {name: schemas[name].get("default") for name in names if name != "sign"}
        keyword = inspect.Parameter.KEYWORD_ONLY
        declared = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        declared += [inspect.Parameter(name, keyword, default=defaults.get(name)) for name in texts]
        method.__signature__ = signature.replace(parameters=declared)  # type: ignore[attr-defined]
        listed = "".join(f"\n{name}\n    {text}" for name, text in texts.items())
        method.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\nOptions\n-------{listed}\n"
        return method

    return documented


def given(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Check the names of arguments, and turn them into fields of a request.

    Parameters
    ----------
    options
        Keyword arguments; None values are omitted.
    names
        Names of the known options, besides those of BESIDE_OPTIONS.

    Raises
    ------
    TypeError
        There is no such option.
    """
    known = (*names, *BESIDE_OPTIONS)
    if unknown := [name for name in options if name not in known]:
        (nearest,) = get_close_matches(unknown[0], known, n=1) or [""]
        raise TypeError(f"{', '.join(unknown)}: there is no such argument{nearest and f'; {nearest} is'}")
    found = {name: value for name, value in options.items() if value is not None}
    if "reference_psd" in found:
        found["reference_psd"] = np.asarray(found["reference_psd"])
    return found | {name: curve(found[name]) for name in curve_kinds() if name in found}
