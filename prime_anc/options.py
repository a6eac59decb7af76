"""Options of a design, declared once: name, type, default, range, text. A name ends with the unit.

Requests in all forms, the OpenAPI document, the command and the Python client derive their options from the
fields of these classes, and `Problem` has those that pose the problem. A class holds the options of one kind of
request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache, reduce
from operator import or_
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from pydantic import Field, create_model

from prime_anc.fields import NUMBER_FORMAT
from prime_anc.method.curve import Curve
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.methods import METHODS
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.method.updates.band_weights import BandWeights
from prime_anc.method.updates.objective import ObjectiveProfile

if TYPE_CHECKING:
    Method: TypeAlias = str
else:
    Method = Literal[METHODS]  # the names, which type checkers cannot read from there
Sign = Literal["minus", "plus"]
Profile = Literal["fast", "paper"]
T = TypeVar("T")

# Below 50 Hz, where the secondary path rolls off, good filters reach 24 to 38 dB.
DEFAULT_MAX_GAIN_DB = 30.0
# Range of a ceiling's number, or of all points of its curve.
MAX_GAIN_RANGE_DB = (-20.0, 60.0)
BAND_WEIGHT_RANGE = (0.0, 10.0)
MAX_LATENCY_SAMPLES = 1024.0
MAX_CONTROLLER_SECTIONS, CONTROLLER_RATES_HZ, MAX_CONTROLLER_LATENCY_US = 16, (48_000.0, 768_000.0), 10_000.0


def option(text: str, *, default: T, low: float | None = None, high: float | None = None) -> T:
    """Declare an option.

    Parameters
    ----------
    text
        Meaning of the option.
    default
        Its value if none is given; None, which no request can send: the text names the default.
    low, high
        Its range, ends included; None: unlimited.
    """
    extra: dict[str, Any] | None = {"format": NUMBER_FORMAT} if isinstance(low, float) else None
    declared = Field(default=default, description=text, ge=low, le=high, json_schema_extra=extra)
    return field(default=default, metadata={"declared": declared})


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(option,))
def declares(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of options, whose annotations include the declarations for pydantic."""
    made = dataclass(frozen=True, eq=False, kw_only=True)(cls)
    hints = get_type_hints(cls)
    for name in cls.__annotations__:
        declared = made.__dataclass_fields__[name].metadata["declared"]  # type: ignore[attr-defined]
        kind = hints[name]
        if declared.default is None:  # an absent field has no null
            kind = reduce(or_, (item for item in get_args(kind) if item is not NoneType))
        made.__annotations__[name] = Annotated[kind, declared]
        delattr(made, name)  # pydantic would take it for a new default in a subclass
    return made


@declares
class ModelFields:
    """Options of every request."""

    model: str | None = option(
        "`name` (its latest version), `name@version`, an alias, or the `model` of an answer; default: the service's "
        "default model.",
        default=None,
    )
    sign: Sign = option(
        "Whether the signal chain subtracts the filter's output, e = d - s * w * x, `minus`, or adds it, `plus`, which "
        "negates the filter.",
        default="minus",
    )


@declares
class FilterFields:
    """Options of every request about a filter."""

    latency_samples: float = option(
        "Delay of the signal chain that `secondary` does not contain, in samples, fractions included.",
        default=0.0,
        low=0.0,
        high=MAX_LATENCY_SAMPLES,
    )
    exact: bool = option(
        "Whether the paths have no error, as simulated ones. Otherwise, without `snr_db`, coherence and uncertainty, "
        "noise and missing tail are estimated from the ends of the responses.",
        default=False,
    )
    snr_db: float = option(
        "Signal-to-noise ratio in dB of paths without coherence and uncertainty, equal in all bands; 0: unknown.",
        default=0.0,
        low=0.0,
        high=200.0,
    )


@declares
class ObjectiveFields:
    """Options of every request that designs a filter: what it is to minimise, and to keep."""

    max_gain_db: float | GainCurve = option(
        "Ceiling on |W| in dB: a number, or a curve over frequency, linear in log frequency between its points and "
        "held beyond its ends.",
        default=DEFAULT_MAX_GAIN_DB,
    )
    band_weights: BandWeights | None = option(
        "Target curve: weights of the bands in the mean noise reduction from 50 Hz to 5 kHz that is optimised, a "
        "curve over frequency as of `max_gain_db`, 0 to 10. Only their ratios matter; default: all alike.",
        default=None,
    )
    risk_weight: float | None = option(
        "Weight of the worst band, against the mean of all, in the objective that updates, ceilings and exports "
        "minimise; default: the profile's.",
        default=None,
        low=0.0,
        high=10.0,
    )
    max_louder_db: float | None = option(
        "By how many dB any band from 20 Hz to 20 kHz may become louder, kept to about 1 dB in the same objective; "
        "default: no limit, of `/hybrid` 3.",
        default=None,
        low=0.0,
        high=30.0,
    )

    @property
    def ceiling(self) -> float | GainCurve:
        """Return the ceiling on |W| that all these options ask for."""
        return self.max_gain_db

    @property
    def weights(self) -> dict[str, Any]:
        """Return the weights in J that all these options ask for, by the names of `ObjectiveProfile`."""
        chosen = {field.name: getattr(self, field.name, None) for field in fields(ObjectiveProfile)}
        chosen["band_weights"] = self.band_weights and self.band_weights.relative()
        return {name: value for name, value in chosen.items() if value is not None}


@declares
class ProblemFields(FilterFields, ObjectiveFields):
    """Options that are part of a filter's problem."""

    min_gain_margin_db: float = option(
        "Smallest gain margin of the loop of filter and `feedback`, if there is one.",
        default=6.0,
        low=0.0,
        high=60.0,
    )
    min_phase_margin_deg: float = option("Smallest phase margin of that loop.", default=30.0, low=0.0, high=90.0)


@declares
class ControllerFields:
    """Options of a feedback controller that is designed."""

    n_sections: int = option(
        "Second-order sections of the controller.", default=8, low=1, high=MAX_CONTROLLER_SECTIONS
    )
    sample_rate: float = option(
        "Rate of the chip that runs the controller, in Hz.",
        default=48_000.0,
        low=CONTROLLER_RATES_HZ[0],
        high=CONTROLLER_RATES_HZ[1],
    )
    latency_us: float = option(
        "Delay in microseconds of the chip's loop, converters and computation, that `secondary` does not contain; the "
        "filter's is `latency_samples`.",
        default=0.0,
        low=0.0,
        high=MAX_CONTROLLER_LATENCY_US,
    )
    number_format: str = option(
        "Format of the coefficients: `float32`, `float64` or `qI.F`, as `q5.27`.", default="float32"
    )
    max_gain_db: float | None = option(
        "Ceiling on |K| in dB; default: 40 dB above the inverse of the secondary path's level.",
        default=None,
        low=-60.0,
        high=120.0,
    )
    max_sensitivity_db: float = option(
        "Largest 1 / |1 + L| in dB, by which the loop amplifies at any frequency.", default=6.0, low=1.0, high=20.0
    )
    min_gain_margin_db: float = option("Smallest gain margin of the loop.", default=6.0, low=0.0, high=60.0)
    min_phase_margin_deg: float = option("Smallest phase margin of the loop.", default=30.0, low=0.0, high=90.0)


@declares
class MethodFields:
    """Options of the design method."""

    method: Method = option("`prime`: the model's generator. The other methods need no training.", default="prime")
    leave_one_out: bool = option(
        "With several conditions, also predict per condition the effect of a filter designed on the others.",
        default=False,
    )


@declares
class UpdateFields:
    """Options of the updates."""

    k: int = option("Largest number of Gauss-Newton updates.", default=3, low=0, high=MAX_UPDATES)
    profile: Profile = option(
        "`fast`: the default, on a grid with twice the points for responses of more than 4096 samples. `paper`: as "
        "published.",
        default="fast",
    )


@declares
class SynthesisFields(ModelFields, ProblemFields, MethodFields):
    """Options of a design without updates."""


@declares
class DesignFields(SynthesisFields, UpdateFields):
    """All options of a design."""


DEFAULTS = DesignFields()


@cache
def option_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of all options: `description`, `default`, and `type`, `minimum`, `maximum`, `enum`."""
    declared: dict[str, Any] = get_type_hints(DesignFields, include_extras=True)
    properties: dict[str, dict[str, Any]] = create_model("Declared", **declared).model_json_schema()["properties"]
    return properties


@cache
def controller_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of a controller's options, as `option_schemas` does of a design's."""
    declared: dict[str, Any] = get_type_hints(ControllerFields, include_extras=True)
    properties: dict[str, dict[str, Any]] = create_model("Wishes", **declared).model_json_schema()["properties"]
    return properties


@cache
def curve_kinds() -> dict[str, type[Curve]]:
    """Return the options that are curves, or may be, with their kinds of curve."""
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(DesignFields).items()}
    kinds = {name: [kind for kind in args if isinstance(kind, type)] for name, args in hints.items()}
    return {name: kind for name, found in kinds.items() for kind in found if issubclass(kind, Curve)}
