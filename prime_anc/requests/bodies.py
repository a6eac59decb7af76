"""Bodies of designs, evaluations and exports: types that validate all forms and make their schemas.

Arrays of tensors may replace lists of numbers. Errors are RequestErrors that name the faulty field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    Field,
    PlainValidator,
    model_validator,
)

from prime_anc.fields import Absent, Number
from prime_anc.hardware.filter_files import KINDS as FILE_KINDS
from prime_anc.hardware.realise import DEFAULT_SECTIONS, SAMPLE_RATES_HZ, Denominator, Target
from prime_anc.hardware.second_order_sections import MAX_SECTIONS
from prime_anc.hardware.short_fir import at_design_rate
from prime_anc.hardware.targets import requested, target, targets
from prime_anc.method.conventions import MAX_TAPS, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.sections import Sections
from prime_anc.method.types import MAX_CONDITIONS, Complex64, Float32, Paths
from prime_anc.options import DEFAULTS
from prime_anc.requests.arrays import (
    PathField,
    RateField,
    Series,
    check_condition,
    check_some_taps,
    floats,
    is_encoded,
)
from prime_anc.requests.controllers import ControllerField, ControllerWishes, WishesField, sections_field
from prime_anc.requests.errors import RequestError
from prime_anc.requests.options import (
    FilterOptions,
    ModelOptions,
    ObjectiveOptions,
    RefineOptions,
    SynthesisOptions,
)
from prime_anc.requests.reading import validate_object
from prime_anc.requests.strict import StrictModel, naming, shown

# Names of known devices, for `/export`.
TARGET_NAMES = tuple(targets())

DEFAULT_MARGINS = {name: getattr(DEFAULTS, name) for name in ("min_gain_margin_db", "min_phase_margin_deg")}


def refuse_unused(fields: object, defaults: Mapping[str, object], why: str, place: str = "") -> None:
    """Refuse fields without effect, unless they have their defaults, which some clients always send.

    Parameters
    ----------
    fields
        Object with the fields.
    defaults
        Default by name of field.
    why
        Reason and remedy, for the message.
    place
        Prefix of the fields' names in the request.

    Raises
    ------
    RequestError
        `invalid-field`.
    """
    for name, default in defaults.items():
        if getattr(fields, name) != default:
            name = place + name
            raise RequestError("invalid-field", f"{name}: it has no effect {why}, or leave {name} out", name)


class CommonBody(ModelOptions):
    """Fields of every request."""

    sample_rate: RateField
    """Hz."""
    reference_psd: Series = None
    """Power spectrum of the noise, one-sided, mean square per bin, on the spectra's grid (16385 bins if both paths
    are impulse responses); default: the model's reference noise."""

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Check conditions between fields."""


class Measured(StrictModel):
    """Optional measurements beside a pair of paths."""

    feedback: PathField = None
    """Path from loudspeaker to outer microphone, F; a spectrum has the grid of the other paths."""
    coherence: Series = None
    """Magnitude-squared coherence of x and e with a silent loudspeaker, per bin of the same grid, 0 to 1."""
    uncertainty: Series = None
    """`uncertainty` of `/calibrate`: unknown over known power in 31 bands from 20 Hz to 20 kHz of the primary, then of
    the secondary path. Designs and predictions prefer it to the coherence."""
    if TYPE_CHECKING:
        primary: Any
        secondary: Any

    def as_sent(self) -> Paths:
        """Return the condition on its own grid, with an uncertainty [62]."""
        return Paths(
            self.primary, self.secondary, self.coherence, uncertainty=self.uncertainty, feedback=self.feedback
        )


class PathPairBody(Measured):
    """Measurements in one condition."""

    primary: PathField
    """Path from outer microphone to error microphone, P. A spectrum is one-sided, n / 2 + 1 bins, n a power of two from
    4096 to 65536, of a causal impulse response, which is zero-padded or cut to 32768 samples; cutting may lose at most
    -40 dB of its energy."""
    secondary: PathField
    """Path from loudspeaker to error microphone, S; a spectrum has the grid of a primary spectrum."""


class ConditionBody(PathPairBody):
    """One of several conditions of a filter: a seating, a direction, a way of wearing."""

    weight: Number = Field(1.0, gt=0, lt=1e6)
    """Weight relative to the other conditions."""
    label: str = Field("", max_length=80)
    """Name of the condition in answers and errors."""

    def as_sent(self) -> Paths:
        """Return the condition with its weight and name."""
        return replace(super().as_sent(), weight=self.weight, label=self.label)


class Controlled(StrictModel):
    """A request about a filter, beside which a controller may run."""

    # Whether `controller` may be a reference, which `reading` replaces.
    takes_published: ClassVar[bool] = True
    controller: ControllerField = None
    """Feedback controller that runs beside the filter, as `/hybrid` answers it or `/models` lists it; as text, a
    published one's `name`, `name@version` or alias. Predictions, designs and loops are of both."""


class PathsBody(CommonBody, PathPairBody, Controlled):
    """A request about one condition."""

    @cached_property
    def all_conditions(self) -> list[Paths]:
        """Return the only condition."""
        return [self.as_sent()]

    def check(self) -> None:
        """Check conditions between fields."""
        check_condition(self.all_conditions[0], self.reference_psd)


def _conditions(value: object, kind: type[ConditionBody] = ConditionBody) -> list[ConditionBody]:
    """Read 1 to 16 conditions; RequestError names the faulty one."""
    if not isinstance(value, list):
        raise RequestError("invalid-field", f"conditions: {shown(value)} is not a list of conditions", "conditions")
    if not 1 <= len(value) <= MAX_CONDITIONS:
        found = f"conditions: {len(value)} conditions; send 1 to {MAX_CONDITIONS}"
        raise RequestError("out-of-range", found, "conditions")
    read = []
    for n, item in enumerate(value):
        with naming(f"conditions.{n}", item.get("label") if isinstance(item, dict) else None):
            read.append(validate_object(kind, item))
    return read


_ConditionList = Annotated[list[ConditionBody], Field(min_length=1, max_length=MAX_CONDITIONS)]


class JointBody(CommonBody, Measured, Controlled):
    """A request about one filter for one or several conditions."""

    primary: PathField = None
    """Path from outer microphone to error microphone, P: an impulse response, or a one-sided spectrum of n / 2 + 1
    bins, n a power of two from 4096 to 65536, of a causal impulse response, which is zero-padded or cut to 32768
    samples; cutting may lose at most -40 dB of its energy."""
    secondary: PathField = None
    """Path from loudspeaker to error microphone, S; a spectrum has the grid of a primary spectrum."""
    conditions: Annotated[Any, PlainValidator(_conditions, json_schema_input_type=_ConditionList)] = None
    """Conditions for one filter, instead of `primary` and `secondary`."""

    @cached_property
    def all_conditions(self) -> list[Paths]:
        """Return the conditions: the request itself, or several."""
        return [item.as_sent() for item in ((self,) if self.conditions is None else self.conditions)]

    def check(self) -> None:
        """Check every condition; RequestError names the faulty one."""
        if self.conditions is None:
            for name in ("primary", "secondary"):
                if getattr(self, name) is None:
                    raise RequestError("missing-field", f"{name}: the field is missing; send it", name)
            check_condition(self.all_conditions[0], self.reference_psd)
            return
        given = [name for name in PathPairBody.model_fields if getattr(self, name) is not None]
        if given:
            raise RequestError(
                "unknown-field", f"{given[0]}: not allowed beside conditions; put it into every condition", given[0]
            )
        for n, condition in enumerate(self.conditions):
            with naming(f"conditions.{n}", condition.label):
                check_condition(condition.as_sent(), self.reference_psd)


class SynthesisBody(JointBody, SynthesisOptions):
    """Body of `/synthesize`."""

    def check(self) -> None:
        """Check conditions between fields, and that every option has an effect."""
        super().check()
        if self.conditions is None or len(self.conditions) == 1:
            refuse_unused(self, {"leave_one_out": False}, "with one condition: send several")
        if all(condition.feedback is None for condition in self.all_conditions):
            refuse_unused(self, DEFAULT_MARGINS, "without a path `feedback`: send one")
        if not any(item.coherence is None and item.uncertainty is None for item in self.all_conditions):
            refuse_unused(
                self, {"exact": False, "snr_db": 0.0}, "with a coherence or an uncertainty: leave that out"
            )
        if self.exact:
            refuse_unused(self, {"snr_db": 0.0}, "with `exact`: leave one out")


class DesignBody(SynthesisBody, RefineOptions):
    """Body of `/refine`."""


class HybridCondition(ConditionBody):
    """A condition of a filter and a controller."""

    stability_only: bool = False
    """Whether the loop only has to be stable in it, and nothing else counts."""


_HybridConditions = Annotated[list[HybridCondition], Field(min_length=1, max_length=MAX_CONDITIONS)]


class HybridBody(DesignBody):
    """Body of `/hybrid`."""

    takes_published: ClassVar[bool] = False
    conditions: Annotated[
        Any,
        PlainValidator(partial(_conditions, kind=HybridCondition), json_schema_input_type=_HybridConditions),
    ] = None
    """Conditions for one filter and one controller, instead of `primary` and `secondary`."""
    controller: WishesField = ControllerWishes()
    """What the controller has to be."""
    lend_wearing: bool = True
    """Whether the loop must also be stable with the changes that pressing and loosening the earphone make to the
    secondary path of the model's listeners, where this ear's was measured once."""

    @property
    def stability_only(self) -> list[Paths]:
        """Return the conditions in which the loop only has to be stable."""
        return [item.as_sent() for item in self.conditions or () if item.stability_only]

    @cached_property
    def all_conditions(self) -> list[Paths]:
        """Return the conditions that count."""
        if self.conditions is None:
            return [self.as_sent()]
        return [item.as_sent() for item in self.conditions if not item.stability_only]

    def check(self) -> None:
        """Check the other fields, and that a condition counts."""
        if not self.all_conditions:
            found = "conditions: all of them are stability_only; let at least one count"
            raise RequestError("invalid-field", found, "conditions")
        super().check()


# Other members of `coefficients` in the answer of `/export`, which requests ignore.
_OF_REALISATION = {"form", "denominator", "number_format", "words", "shift", "n_saturated", "scaling"}


class RunningFilter(StrictModel):
    """The 2048 `taps` of a design, in `sign`, or the `coefficients` of `/export`."""

    sos: Absent[sections_field(MAX_SECTIONS)] = None  # type: ignore[valid-type]
    """Rows b0, b1, b2, 1, a1, a2."""
    taps: Series = None
    sample_rate: Absent[Annotated[Number, Field(ge=SAMPLE_RATES_HZ[0], le=SAMPLE_RATES_HZ[1])]] = None
    """Hz; 48000 if left out beside the taps of a design."""

    @property
    def taps_or_response(self) -> Float32 | Complex64:
        """Return the taps of a design, else the response on the design grid; RequestError if unstable or neither."""
        if (self.sos is None) == (self.taps is None):
            raise RequestError("invalid-field", "send sos or taps")
        is_design = self.taps is not None and len(self.taps) == N_TAPS
        if is_design and self.sample_rate in (None, SAMPLE_RATE_HZ):
            return self.taps
        if self.sample_rate is None:
            raise RequestError("missing-field", "sample_rate: the field is missing; send it", "sample_rate")
        if self.taps is not None:
            if not 1 <= len(self.taps) <= MAX_TAPS:
                raise RequestError("out-of-range", f"taps: {len(self.taps)} taps; send 1 to {MAX_TAPS}", "taps")
            return at_design_rate(self.taps, float(self.sample_rate)).astype(np.complex64)
        sections = Sections(np.asarray(self.sos), float(self.sample_rate))
        if not sections.is_stable:
            raise RequestError("invalid-field", "sos: a pole is not inside the unit circle; check a1 and a2", "sos")
        return sections.at_design_rate().astype(np.complex64)


def _filter(value: object) -> Float32 | Complex64:
    """Read a filter's 2048 taps as float32, or what a chip runs as its response, complex64 [16385].

    A list of taps, as answers and the page's files have it, is read too.
    """
    if isinstance(value, dict) and not is_encoded(value):
        with naming("fir"):
            used = {name: item for name, item in value.items() if name not in _OF_REALISATION}
            return validate_object(RunningFilter, used).taps_or_response
    taps = floats(value, "fir", MAX_TAPS)
    if len(taps) != N_TAPS:
        raise RequestError("invalid-field", f"fir: {len(taps)} taps; send {N_TAPS}", "fir")
    return taps


class FilterField(CommonBody):
    """An existing filter."""

    fir: Annotated[Any, PlainValidator(_filter, json_schema_input_type=RunningFilter)]
    """The filter."""


class EvaluateBody(FilterField, PathsBody, FilterOptions):
    """Body of `/evaluate`."""


class ExportTarget(StrictModel):
    """Form and format of the hardware's filter."""

    name: Absent[Literal[TARGET_NAMES]] = None  # type: ignore[valid-type]
    """A known device, whose values are the defaults of the other fields."""
    form: Literal["fir", "sos"] = "sos"
    """`sos`: a cascade of second-order sections. `fir`: taps."""
    n_taps: int = Field(N_TAPS, ge=1, le=MAX_TAPS)
    """Number of taps, for `fir`. With 2048 at 48 kHz the filter of the request is kept, else a new one is designed."""
    n_sections: int = Field(DEFAULT_SECTIONS, ge=1, le=MAX_SECTIONS)
    """Number of sections, for `sos`."""
    sample_rate: Number = Field(float(SAMPLE_RATE_HZ), ge=SAMPLE_RATES_HZ[0], le=SAMPLE_RATES_HZ[1])
    """Sample rate of the hardware, Hz, which plays nothing above half of it."""
    number_format: str = "float32"
    """Format of the coefficients: `float32`, `float64`, or `qI.F` with I integer bits, including the sign, and F
    fraction bits, such as `q1.15`, `q1.23`, `q1.31`, `q5.23`."""
    denominator: Denominator = "subtracted"
    """Whether the hardware subtracts a1 and a2 times past outputs, for `sos`, or adds them, as SigmaDSP does. For
    `added`, `words` and the files `c` and `csv` have a1 and a2 negated."""

    def as_target(self) -> Target:
        """Return the target of `realise`; RequestError for an unknown number format, or a size of the other form."""
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"name", "sample_rate"}}
        if "sample_rate" in self.model_fields_set:
            sent["sample_rate_hz"] = float(self.sample_rate)
        try:
            found = requested(self.name, sent)
            unused: dict[str, object] = {"n_taps": N_TAPS}
            if found.form == "fir":
                unused = {"n_sections": DEFAULT_SECTIONS, "denominator": "subtracted"}
            refuse_unused(self, unused, f"with the form {found.form}: send the other form", "target.")
            return found
        except InvalidOption as error:
            raise RequestError("invalid-field", str(error), error.field) from None


class ExportBody(FilterField, JointBody, ObjectiveOptions):
    """Body of `/export`."""

    target: ExportTarget
    file: Absent[Literal[FILE_KINDS]] = None  # type: ignore[valid-type]
    """Kind of file to answer with instead of JSON."""

    def check(self) -> None:
        """Check the other fields, and that a filter to redesign is not zero."""
        super().check()
        if np.iscomplexobj(self.fir):
            raise RequestError("invalid-field", "fir: send the 2048 taps of a design", "fir")
        if not self.target.as_target().keeps(N_TAPS):
            check_some_taps(self.fir)
        if self.controller is not None and self.target.name is not None:
            most, found = target(self.target.name).max_controller_sections, len(self.controller.sos)
            if most is not None and found > most:
                detail = (
                    f"controller: {self.target.name} holds {most} sections of a controller, not {found}; "
                    "design one of that size"
                )
                raise RequestError("invalid-field", detail, "controller")
