"""Options as keyword arguments, with the names, defaults and texts that `synthesis.options` declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from prime_anc_client.wire import curve
from synthesis.options import (
    DesignFields,
    FilterFields,
    ModelFields,
    ObjectiveFields,
    SynthesisFields,
    UpdateFields,
    curve_kinds,
    option_schemas,
)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _names(*kinds: type) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for kind in kinds for field in fields(kind)))


SYNTHESIS = _names(SynthesisFields)
REFINEMENT = _names(DesignFields)
UPDATES = _names(UpdateFields)
FILTER = _names(ModelFields, FilterFields)
EXPORT = (*FILTER, *_names(ObjectiveFields))


def takes_options(names: tuple[str, ...]) -> Callable[[_Method], _Method]:
    """Put options into a method's signature and docstring.

    Parameters
    ----------
    names
        Names of the options that `**options` stands for. `sign` is None by default: the calibration's or the design's,
        else the declared one.
    """

    def documented(method: _Method) -> _Method:
        schemas = option_schemas()
        signature = inspect.signature(method)
        declared = [
            parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD
        ]
        defaults = {name: None if name == "sign" else schemas[name].get("default") for name in names}
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name]) for name in names]
        method.__signature__ = signature.replace(parameters=declared + added)  # type: ignore[attr-defined]
        texts = "".join(f"\n{name}\n    {schemas[name]['description']}" for name in names)
        method.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\nOptions\n-------{texts}\n"
        return method

    return documented


def given(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Check the names of options, and turn them into fields of a request.

    Parameters
    ----------
    options
        Keyword arguments; None values are omitted.
    names
        Names of the known options.

    Raises
    ------
    TypeError
        There is no such option.
    """
    if unknown := options.keys() - set(names):
        raise TypeError(f"{', '.join(sorted(unknown))}: there is no such argument")
    found = {name: value for name, value in options.items() if value is not None}
    return found | {name: curve(found[name]) for name in curve_kinds() if name in found}
