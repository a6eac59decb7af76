"""The answers of functions, commands and addresses: every field once, with its unit, range and text.

The service fills and documents them, the client and the library return them, and files on disk are their JSON.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema

from prime_anc import plots
from prime_anc.fields import NUMBER_FORMAT, Absent, Example, Number, without_absent
from prime_anc.method.bands import BAND_CENTRE_HZ, N_UNCERTAINTY
from prime_anc.method.conventions import MAX_TAPS, N_BINS, N_TAPS, PRIMARY_TAPS, SECONDARY_TAPS, STAGES
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.options import Method, Sign

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Values = NDArray[np.floating[Any]]
else:
    Values = Any  # pydantic takes the schema from the mark beside it

N_BANDS = len(BAND_CENTRE_HZ)
_ROW = [0.8, -1.2, 0.5, 1.0, -1.6, 0.7]

Kind = TypeVar("Kind")


class _Numbers(WithJsonSchema):
    """Marks an array: a list of finite numbers in JSON."""

    def __init__(self, low: int, high: int | None = None, dtype: type[np.floating[Any]] = np.float32) -> None:
        """Limit the number of values to low to high, or without high to exactly low."""
        self.limits, self.dtype = (low, low if high is None else high), dtype
        limits = dict(zip(("minItems", "maxItems"), self.limits, strict=True))
        super().__init__({"type": "array", "items": {"type": "number", "format": NUMBER_FORMAT}, **limits})

    def read(self, values: object) -> NDArray[Any]:
        """Return read-only values; raises ValueError for others than finite ones within the limits."""
        array = np.array(values, self.dtype)
        low, high = self.limits
        if array.ndim != 1 or not low <= len(array) <= high or not np.isfinite(array).all():
            raise ValueError(f"{list(array.shape)} numbers are not {low} to {high} finite ones")
        array.flags.writeable = False
        return array


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
class Answer:
    """An answer: immutable, with fields by keyword; those that may be absent are then None."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True, json_schema_extra=without_absent)

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, kw_only=True, repr=False)(cls)

    def __repr__(self) -> str:
        shown = ", ".join(f"{item.name}={_shown(getattr(self, item.name))}" for item in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({shown})"

    def save(self, file: str | PathLike[str]) -> None:
        """Write the answer as JSON, which the command and `read` take."""
        import orjson

        Path(file).write_bytes(orjson.dumps(document(self), option=orjson.OPT_SERIALIZE_NUMPY))


def document(value: Any) -> Any:
    """Return an answer as dictionaries and lists of numbers, texts and arrays, without what is absent."""
    if isinstance(value, Answer):
        items = ((field, getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
        return {
            field.name: document(item) for field, item in items if item is not None or field.default is not None
        }
    if isinstance(value, dict):
        return {name: document(item) for name, item in value.items()}
    return [document(item) for item in value] if isinstance(value, list | tuple) else value


def read(kind: type[Kind], found: Mapping[str, Any]) -> Kind:
    """Make an answer of its JSON; members that it does not name are left out.

    Raises
    ------
    ValueError
        It has not the fields of this answer.
    """
    try:
        readers: Mapping[str, Callable[[Any], Any]] = _readers(kind)  # type: ignore[arg-type]
        return kind(**{name: make(found[name]) for name, make in readers.items() if name in found})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is no {kind.__name__}: {error}") from error


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """Return the reader of each field."""
    return {name: _reader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the reader of a type."""
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, _Numbers):
            return mark.read
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Union, UnionType):
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is list:
        item = _reader(arguments[0])
        return lambda values: [item(value) for value in values]
    if is_dataclass(hint):
        return lambda value: read(hint, value)  # type: ignore[arg-type]
    return lambda value: value


def texts(kind: type[Answer]) -> dict[str, str]:
    """Return the texts of an answer's fields, by dotted name."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")

    def inside(part: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] | part if "$ref" in part else part
        yield place, part.get("description", "")
        for name, inner in part.get("properties", {}).items():
            yield from inside(inner, f"{place}.{name}".lstrip("."))

    return dict(inside(schema, ""))


def _shown(value: object) -> str:
    """Shorten a value for the representation of its answer."""
    if isinstance(value, np.ndarray):
        return f"<{' x '.join(map(str, value.shape))} numbers>"
    return f"{value:.4g}" if isinstance(value, float) else reprlib.repr(value)


Taps = Annotated[Values, _Numbers(N_TAPS), Example([0.5, 0.25] + [0.0] * (N_TAPS - 2))]
PerBand = Annotated[Values, _Numbers(N_BANDS)]
PerBin = Annotated[Values, _Numbers(N_BINS)]
PerUpdate = Annotated[list[Number], Field(max_length=MAX_UPDATES)]
BandCentres = Annotated[Values, _Numbers(N_BANDS), Example(BAND_CENTRE_HZ)]
Time = Annotated[Number | None, Field(ge=0)]
Updates = Annotated[int, Field(ge=0, le=MAX_UPDATES)]


class ModelReference(Answer):
    """A published version of a model."""

    name: Annotated[str, Example("generic")]
    version: Annotated[int, Field(ge=1), Example(1)]
    digest: Annotated[str, Example("sha256:" + "0123456789abcdef" * 4)]


class RefinementAnswer(Answer):
    """Record of the Gauss-Newton updates."""

    requested: Annotated[Updates, Example(1)]
    applied: Annotated[Updates, Example(1)]
    stopped: Literal["budget", "converged", "no_decrease", "deadline"]
    """budget: all requested updates were applied; converged: the best trial step lowered the objective by too little;
    no_decrease: no trial step lowered it; deadline: time was short."""
    objective: Annotated[list[Number], Field(min_length=1, max_length=MAX_UPDATES + 1), Example([-4.62, -5.07])]
    """Value before the first and after each applied update."""
    step_scale: Annotated[PerUpdate, Example([1.0])]
    pcg_residual: Annotated[PerUpdate, Example([0.021])]


class OutOfBand(Answer):
    """Change of level outside the scored bands, dB; positive is louder."""

    low: Annotated[Number, Example(-3.2)]
    """17.8 to 44.7 Hz."""
    high: Annotated[Number, Example(0.4)]
    """8.9 to 22.4 kHz."""


class LevelReduction(Answer):
    """Reduction of the reference noise's level from 20 Hz to 20 kHz, dB; positive is quieter."""

    unweighted: Annotated[Number, Example(12.0)]
    a_weighted: Annotated[Number, Example(14.7)]
    """With the A-weighting of IEC 61672-1."""


class Sensitivity(Answer):
    """Loss of mean noise reduction by an error of the secondary path, dB; the worse of both directions."""

    gain_1_db: Annotated[Number, Example(6.5)]
    """Level higher or lower by 1 dB."""
    delay_1_sample: Annotated[Number, Example(5.1)]
    """Later or earlier by one sample."""


class _Predicted(Answer):
    """An answer with the prediction of a filter."""

    prediction: PredictionAnswer

    def __repr__(self) -> str:
        found = self.prediction
        codes = ", ".join(item.code for item in getattr(self, "warnings", ())) or "none"
        return (
            f"<{type(self).__name__}: {found.mean_noise_reduction_db:.1f} ± {found.interval_db:.1f} dB of noise "
            f"reduction, {found.amplification_db:.2f} dB of amplification; warnings: {codes}>"
        )

    def plot(self, axes: Axes | None = None, label: str = "predicted") -> Axes:
        """Draw the predicted noise reduction per band."""
        return plots.bands({label: self.prediction.noise_reduction_db}, BAND_CENTRE_HZ, axes)


class ConditionAnswer(Answer):
    """Predicted effect in one of several conditions."""

    label: str
    mean_noise_reduction_db: Number
    amplification_db: Number
    noise_reduction_db: PerBand
    left_out_noise_reduction_db: Absent[Number] = None
    """Mean of a filter designed on the other conditions, with `leave_one_out`."""


class LoopAnswer(Answer):
    """Loop of filter and feedback path; with several conditions, the worst of each figure."""

    stable: bool
    gain_margin_db: Annotated[Number, Example(7.2)]
    """Gain that the loop has left before it howls; at most 120."""
    phase_margin_deg: Annotated[Number, Example(38.0)]
    """Distance of the loop's phase from -1 where its gain is one; 180 if it never is."""
    peak_db: Annotated[Number, Example(21.4)]
    """Largest loop gain |L|."""
    peak_hz: Annotated[Number, Example(98.0)]
    max_sensitivity_db: Annotated[Number, Example(5.6)]
    """Largest 1 / |1 + L|, by which the loop amplifies."""
    nearest_hz: Annotated[Number, Example(2150.0)]
    """Where it does."""
    loss_db: Annotated[Number, Example(0.0)]
    """Mean noise reduction that the margins cost."""


class PlantLoop(LoopAnswer):
    """Loop of one plant, at the level at which it is worst."""

    label: Annotated[str, Example("pressed")]


class HybridLoop(LoopAnswer):
    """Loop of filter and controller: the worst of each figure on all plants."""

    conditions: Annotated[list[PlantLoop], Field(min_length=1)]
    """Conditions, then changes by wearing that the model lends."""


class PredictionAnswer(Answer):
    """Predicted effect of a filter."""

    basis: Annotated[Literal["exact", "coherence", "model", "response"], Example("model")]
    """Source of the paths' uncertainty: the coherence or uncertainty of the request, the model's support listeners, or
    the ends of the responses."""
    band_centre_hz: BandCentres
    """Nominal centres of the one-third octaves."""
    noise_reduction_db: Annotated[PerBand, Example([21.5] * N_BANDS)]
    """Per band; positive is quieter."""
    mean_noise_reduction_db: Annotated[Number, Example(21.5)]
    """Mean over the bands from 50 Hz to 5 kHz that the system has, `counted_bands_hz`."""
    interval_db: Annotated[Number, Field(ge=0), Example(3.2)]
    """Half-width of the interval about that mean that contains the true mean nine times in ten."""
    amplification_db: Annotated[Number, Example(0.0)]
    """Mean increase in level over the 23 bands, dB; quieter bands count as 0."""
    wide_amplification_db: Annotated[Number, Example(0.1)]
    """Mean increase in level over the 31 bands from 20 Hz to 20 kHz."""
    out_of_band_db: OutOfBand
    level_reduction_db: LevelReduction
    sensitivity_db: Sensitivity
    max_gain_db: Annotated[Number, Example(27.9)]
    """Largest |W|; -200 for a filter that is zero."""
    control_rms: Annotated[Number, Example(0.071)]
    """RMS of the loudspeaker signal, in the unit of the reference."""
    full_scale_db: Absent[Annotated[Number, Example(11.0)]] = None
    """By how much louder than the sent reference the noise may be until the loudspeaker signal's RMS is 12 dB below
    full scale, so that its peaks reach 1; absent if none was sent, whose unit is full scale."""
    unknown_bands_hz: Annotated[list[Number], Example([])]
    """Nominal centres of the bands from 20 Hz to 20 kHz of which 0.4 or more is unknown of a path, or in which the
    primary path is 60 dB below its loudest band."""
    louder_bands_hz: Annotated[list[Number], Example([20.0, 25.0])]
    """Nominal centres of the bands from 20 Hz to 20 kHz that become louder, or would with three times what the
    measurement leaves unknown."""
    counted_bands_hz: Annotated[list[Number], Example(BAND_CENTRE_HZ[:21])]
    """Nominal centres of the bands of `mean_noise_reduction_db`: those from 50 Hz to 5 kHz in which the system is not
    silent. `amplification_db` leaves silent bands out, too."""
    feedforward_noise_reduction_db: Absent[PerBand] = None
    """With a controller: the filter's share of `noise_reduction_db`."""
    feedback_noise_reduction_db: Absent[PerBand] = None
    """With a controller: its share."""
    playback_change_db: Absent[PerBand] = None
    """With a controller: by how much the loop makes what the loudspeaker plays besides, as music, louder."""
    worst_noise_reduction_db: Absent[Number] = None
    """Lowest mean of several conditions, over which the other figures are weighted means."""
    conditions: Absent[list[ConditionAnswer]] = None


class Warning_(Answer):
    """A limitation of an otherwise valid answer."""

    code: Annotated[str, Example("prediction_from_model")]
    detail: Annotated[str, Example("no coherence was sent")]


class Timings(Answer):
    """Milliseconds; null: not timed."""

    decode: Annotated[Time, Example(0.5)]
    queue: Annotated[Time, Example(0.05)]
    path_ratio: Annotated[Time, Example(0.6)]
    generate: Annotated[Time, Example(0.9)]
    reconstruct: Annotated[Time, Example(0.4)]
    refine: Annotated[Time, Example(0.9)]
    predict: Annotated[Time, Example(0.4)]
    encode: Annotated[Time, Example(0.06)]
    core: Annotated[Time, Example(2.8)]
    """path_ratio + generate + reconstruct + refine."""
    total: Annotated[Time, Example(4.0)]
    """From the first byte handled to the body encoded."""


TimingsOfEvaluation = Annotated[
    Timings,
    Example(dict.fromkeys((*STAGES, "core"), 0.0) | {"decode": 0.5, "predict": 0.4, "encode": 0.03, "total": 1.2}),
]


class ScalingAnswer(Answer):
    """Scaling of a full-scale input for data words of as many bits as the coefficients."""

    headroom_bits: int
    """Bits by which to shift the input down so that no node overflows."""
    overflow_db: Number
    """Largest possible value of a node over a full-scale input."""
    noise_db: Number
    """RMS round-off noise at the output over full scale, with that headroom."""
    wide_noise_db: Number
    """The same for sections that feed back double-precision outputs."""


class ControllerAnswer(Answer):
    """A feedback controller, y = W x + K e; a valid `controller` of other requests."""

    sos: Annotated[
        list[Annotated[list[Number], Field(min_length=6, max_length=6)]], Field(min_length=1), Example([_ROW] * 4)
    ]
    """Rows b0, b1, b2, 1, a1, a2 in `sign`, as its number format holds them."""
    sample_rate: Annotated[Number, Example(192_000.0)]
    latency_us: Annotated[Number, Example(10.0)]
    number_format: Annotated[str, Example("float32")]
    max_gain_db: Annotated[Number, Example(24.1)]
    """Largest |K|."""
    words: Absent[list[Any]] = None
    """Integers for the hardware, in units of the last bit: rows b0, b1, b2, a1, a2."""
    shift: Absent[list[int]] = None
    """Exponent of the power of two by which to multiply the words, per section."""
    scaling: Absent[ScalingAnswer] = None
    needed_number_format: Absent[str] = None
    """Least format that resolves poles as low as the controller may need, if `number_format` does not."""
    playback_sos: Absent[Annotated[list[Any], Example([_ROW] * 6)]] = None
    """Rows for what is played, of any sound: they undo `playback_change_db`."""
    playback_peak_db: Absent[Annotated[Number, Example(14.0)]] = None
    """Headroom that these rows need, their largest gain; an export's file holds them quieter by it."""


class DesignAnswer(_Predicted):
    """A filter with its prediction and the record of its updates."""

    fir: Taps
    """Taps, exact in float32."""
    sample_rate: Literal[48_000]
    sign: Sign
    method: Method
    model: ModelReference
    refinement: RefinementAnswer
    prediction: PredictionAnswer
    latency_samples: Absent[Number] = None
    """As requested, if not 0; requests about this filter need it too."""
    max_gain_db: Absent[Number] = None
    """As requested, if a number other than the default; exports need it too."""
    max_louder_db: Absent[Number] = None
    """As requested, or the default of `/hybrid`; exports need it too."""
    loop: Absent[LoopAnswer] = None
    """With a `feedback`; the prediction is then that of the closed loop."""
    controller: Absent[ControllerAnswer] = None
    """That of the request, which runs beside the filter."""
    warnings: list[Warning_]
    timings_ms: Timings

    @property
    def taps(self) -> NDArray[np.floating[Any]]:
        """Return `fir`: causal taps at 48 kHz, float32 [2048], in `sign`."""
        return self.fir


class HybridAnswer(DesignAnswer):
    """A filter and the controller beside it; prediction and loop are of both."""

    controller: ControllerAnswer = field()  # required, unlike that of any design
    loop: HybridLoop = field()


class ProblemDocument(Answer):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    """What is wrong and what to do."""
    field: Absent[str] = None
    """Dotted name of the faulty field."""


class EvaluationAnswer(_Predicted):
    """Predicted effect of a given filter."""

    prediction: PredictionAnswer
    loop: Absent[LoopAnswer] = None
    """As in a design."""
    warnings: list[Warning_]
    timings_ms: TimingsOfEvaluation


class MeasuredAnswer(Answer):
    """Measured effect of the filter: medians over blocks of the recordings."""

    band_centre_hz: BandCentres
    noise_reduction_db: Annotated[PerBand, Example([17.1] * N_BANDS)]
    mean_noise_reduction_db: Annotated[Number, Example(17.1)]
    amplification_db: Annotated[Number, Example(0.0)]
    interval_db: Annotated[Number | None, Example(0.2)]
    """Half-width of the 80 % interval of the mean, from the scatter between blocks; null: of one block nothing is
    known."""
    n_blocks: Annotated[int, Field(ge=1), Example(8)]
    """Number of blocks in the state that has fewer."""


class DiagnosisEntry(Answer):
    """A deviation from the prediction, or `as_predicted`."""

    code: Annotated[str, Example("level_off")]
    detail: Annotated[str, Example("the secondary path is 1.01 dB louder than measured")]
    by: Absent[Annotated[Number, Example(1.01)]] = None
    """Size: samples for `delay_off`, dB for `level_off`, `leak`, `refit`, `howling`, `implausible_reduction` and
    `as_predicted`."""


class TrimAnswer(Answer):
    """The filter for the present secondary path."""

    gain_db: Annotated[Number, Example(-1.01)]
    """Gain over the filter of the request."""
    delay_samples: Annotated[Number, Example(0.0)]
    """Delay against the filter of the request; negative: earlier."""
    invert: Annotated[bool, Example(False)]
    predicted_noise_reduction_db: Annotated[Number, Example(21.5)]
    fir: Taps | None
    """Null for sections and taps of a chip: change their gain and delay."""
    controller: Absent[ControllerAnswer] = None
    """The controller whose loop is as designed on the present secondary path, if one runs."""


class VerificationAnswer(Answer):
    """Measured effect of a filter, and its deviations from the prediction."""

    measured: MeasuredAnswer
    predicted_noise_reduction_db: Annotated[Number, Example(21.5)]
    predicted_interval_db: Annotated[Number, Field(ge=0), Example(1.8)]
    """Half-width of the interval that holds nine in ten true means."""
    deviation_db: Annotated[Number, Example(-4.4)]
    """Measured less predicted mean noise reduction."""
    band_deviation_db: Annotated[PerBand, Example([-4.4] * N_BANDS)]
    diagnosis: Annotated[list[DiagnosisEntry], Field(min_length=1)]
    trim: TrimAnswer | None
    """null: no gain and delay correct it; measure again."""
    timings_ms: TimingsOfEvaluation

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw measured beside predicted noise reduction per band."""
        measured = self.measured.noise_reduction_db
        curves = {"measured": measured, "predicted": measured - self.band_deviation_db}
        return plots.bands(curves, BAND_CENTRE_HZ, axes)


class ModelDescription(Answer):
    """The manifest of a version, and whether it is in memory."""

    name: Annotated[str, Example("generic")]
    version: Annotated[int, Field(ge=1), Example(1)]
    digest: Annotated[str, Example("sha256:" + "0123456789abcdef" * 4)]
    resident: bool
    dataset: Annotated[str, Example("pandar")]
    split: Annotated[int | None, Example(3)]
    seed: Annotated[int, Example(0)]
    scores: Annotated[dict[str, Any], Example({})]


class ControllerDescription(Answer):
    """The manifest of a version of a published controller, with its coefficients and the margins on every plant."""

    name: str
    version: Annotated[int, Field(ge=1)]
    digest: str
    dataset: str
    sos: list[list[Number]]
    sample_rate: Number
    latency_us: Number
    number_format: str


class ModelList(Answer):
    """Published models."""

    default: Annotated[str, Example("generic")]
    aliases: Annotated[dict[str, str], Example({"live": "generic@1"})]
    models: list[ModelDescription]
    controllers: Annotated[list[ControllerDescription], Example([])]
    broken: Annotated[dict[str, str], Example({})]
    """Damaged entries of the store, with the reason."""


class UnloadedModels(Answer):
    """Unloaded versions."""

    unloaded: Annotated[list[ModelReference], Field(min_length=1)]


class ResidentModelsAnswer(Answer):
    """Versions in memory after a reload."""

    resident: Annotated[list[ModelReference], Field(min_length=1)]


class Live(Answer):
    """The service responds and needs no restart."""

    status: Literal["live"]


class Ready(Answer):
    """The service is ready for requests."""

    status: Literal["ready"]
    device: Annotated[str, Example("cpu")]
    models: list[ModelReference]


class Coefficients(Answer):
    """A realised filter: `taps`, or rows b0, b1, b2, 1, a1, a2 in `sos`."""

    sample_rate: Annotated[Number, Example(48_000.0)]
    form: Annotated[Literal["fir", "sos"], Example("sos")]
    taps: Absent[Annotated[Values, _Numbers(1, MAX_TAPS, np.float64)]] = None
    sos: Absent[Annotated[list[list[Number]], Example([_ROW])]] = None
    denominator: Absent[Annotated[Literal["subtracted", "added"], Example("subtracted")]] = None
    """Whether the hardware subtracts a1 and a2 or adds them. `words` then has them negated, `sos` never."""
    number_format: Absent[Annotated[str, Example("q1.23")]] = None
    words: Absent[Annotated[list[Any], Example([[3355443, -5033165, 2097152, -6710886, 2936013]])]] = None
    """Integers for the hardware, in units of the last bit: taps, or rows b0, b1, b2, a1, a2."""
    shift: Absent[Annotated[Any, Example([1])]] = None
    """Exponent of the power of two by which to multiply the words, or per section."""
    n_saturated: Absent[Annotated[int, Example(0)]] = None
    scaling: Absent[ScalingAnswer] = None


class ExportAnswer(_Predicted):
    """A filter as hardware runs it."""

    coefficients: Coefficients
    prediction: PredictionAnswer
    """Prediction of the realised filter, number format included."""
    controller: Absent[ControllerAnswer] = None
    """That of the request, with its words."""
    loop: Absent[LoopAnswer] = None
    """Loop of the realised filter, and of the controller, as in a design."""
    loss_db: Annotated[Number, Example(2.4)]
    """Predicted mean noise reduction of the filter of the request less that of the realised one."""
    warnings: list[Warning_]
    """Warnings about the paths and the realised filter."""
    sign: Sign
    latency_samples: Annotated[Number, Example(0.0)]
    timings_ms: TimingsOfEvaluation


class PrimaryResponse(Answer):
    """The primary path."""

    impulse_response: Annotated[
        Values, _Numbers(PRIMARY_TAPS), Example([0.0, 0.5, 0.25] + [0.0] * (PRIMARY_TAPS - 3))
    ]


class SecondaryResponse(Answer):
    """The secondary path."""

    impulse_response: Annotated[
        Any, _Numbers(SECONDARY_TAPS), Example([0.0, 0.9, -0.3] + [0.0] * (SECONDARY_TAPS - 3))
    ]


class Complex64Spectrum(Answer):
    """A one-sided spectrum on the design grid."""

    complex64: Annotated[str, Example("AACAPwAAAAA=")]
    """base64 of little-endian interleaved complex64."""


class Spectra(Answer):
    """The paths on the design grid."""

    primary: Complex64Spectrum
    secondary: Complex64Spectrum


class CalibrationBands(Answer):
    """Quality of the calibration per band."""

    centre_hz: BandCentres
    coherence: Annotated[PerBand, Example([0.99] * N_BANDS)]
    noise_reduction_ceiling_db: Annotated[PerBand, Example([20.0] * N_BANDS)]
    """-10 log10(1 - coherence)."""
    secondary_snr_db: Annotated[PerBand, Example([40.0] * N_BANDS)]
    """Level of the secondary path over its estimation noise, dB."""


class FindingAnswer(Answer):
    """A fault; in `not_judged`, a check that was impossible, or advice on a calibration that may pass."""

    code: Annotated[str, Example("low_snr")]
    detail: Annotated[str, Example("noise in the estimated paths costs 1.8 dB")]


class VerdictFigures(Answer):
    """The figures that the verdict is based on."""

    clipped_share: Annotated[Number, Example(0.0)]
    """Largest share of a signal's samples at its extremes."""
    lead_samples: Annotated[Number, Example(-1.0)]
    """Delay of the primary path minus that of the secondary path, samples."""
    noise_cost_db: Annotated[Number, Example(1.8)]
    """Noise reduction that noise in the estimated paths costs, dB."""
    level_db: Annotated[Number | None, Example(-0.3)]
    """Level of the secondary path relative to the support's, dB."""
    delay_samples: Annotated[Number | None, Example(0.02)]
    """Delay of the secondary path relative to the support's, samples."""
    distance: Annotated[Number | None, Example(17.0)]
    """Distance of the paths from the support's: 3 to 140 for measured ears."""
    tail_db: Annotated[Number, Example(-58.1)]
    """Energy of the secondary or feedback path after a quarter of the window relative to that before, dB."""
    window: Annotated[int, Example(8192)]
    """Length of a window, samples."""
    n_frames: Annotated[int, Example(48)]
    """Number of windows in the state that has fewer."""


class VerdictAnswer(Answer):
    """Whether the calibration can be used."""

    passed: Annotated[bool, Example(False)]
    reasons: list[FindingAnswer]
    """Faults of the calibration."""
    not_judged: Annotated[list[FindingAnswer], Example([])]
    """Checks that were impossible, with the reason."""
    model: ModelReference
    """Model with whose support listeners the paths were compared."""
    figures: VerdictFigures


class CalibrationTimings(Answer):
    """Milliseconds."""

    queue: Annotated[Number, Example(0.1)]
    decode: Annotated[Number, Example(21.0)]
    estimate: Annotated[Number, Example(240.0)]
    encode: Annotated[Number, Example(2.1)]
    total: Annotated[Number, Example(320.0)]


class CalibrationAnswer(Answer):
    """Paths, coherence and a verdict; a valid body for `/refine`."""

    primary: PrimaryResponse
    secondary: SecondaryResponse
    sample_rate: Literal[48_000]
    sign: Sign
    coherence: Annotated[PerBin, Example([0.99] * N_BINS)]
    """Magnitude-squared coherence of x and e with gain 0, per bin of the design grid."""
    uncertainty: Annotated[Values, _Numbers(N_UNCERTAINTY), Example([0.001] * N_UNCERTAINTY)]
    """Unknown over known power in 31 bands from 20 Hz to 20 kHz of the primary, then of the secondary path."""
    feedback: Absent[SecondaryResponse] = None
    """Path from loudspeaker to outer microphone, if takes have a `drive`."""
    spectra: Spectra
    bands: CalibrationBands
    verdict: VerdictAnswer
    timings_ms: CalibrationTimings
    model: Absent[str] = None
    """As requested."""

    def __repr__(self) -> str:
        verdict = "passed" if self.verdict.passed else ", ".join(item.code for item in self.verdict.reasons)
        return f"<{type(self).__name__}: {verdict}; coherence {np.mean(self.bands.coherence):.3f}>"

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the paths' levels over frequency."""
        named = (("primary", self.primary), ("secondary", self.secondary), ("feedback", self.feedback))
        return plots.responses({name: path.impulse_response for name, path in named if path is not None}, axes)
