"""Types of the JSON answers, from which the OpenAPI document and its examples are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, WithJsonSchema
from typing_extensions import TypedDict, is_typeddict

from prime_anc.hardware.short_fir import MAX_TAPS
from prime_anc.measure.checks import REASONS
from prime_anc.measure.posterior import PRIMARY_TAPS, SECONDARY_TAPS
from prime_anc.measure.verify import CODES
from prime_anc.method.conventions import N_BINS, N_TAPS, STAGES
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.options import NUMBER_FORMAT, Method, Sign
from service.api.examples import Example
from service.api.json_answers import BAND_CENTRE_HZ
from service.api.options import Number
from service.api.paths import N_UNCERTAINTY
from service.api.warnings import WARNINGS
from service.errors import PROBLEMS, TYPE_PREFIX

N_BANDS = len(BAND_CENTRE_HZ)
_ROW = [0.8, -1.2, 0.5, 1.0, -1.6, 0.7]


def _numbers(low: int, high: int | None = None) -> Any:
    """Return the JSON schema of a list of numbers, which is a NumPy array until it is encoded."""
    limits = {"minItems": low, "maxItems": low if high is None else high}
    return WithJsonSchema({"type": "array", "items": {"type": "number", "format": NUMBER_FORMAT}, **limits})


def _codes(names: Iterable[str]) -> Any:
    """Return the JSON schema of codes that may be added to, which an enumeration would keep clients from reading."""
    return WithJsonSchema({"type": "string", "examples": list(names)})


Taps = Annotated[Any, _numbers(N_TAPS), Example([0.5, 0.25] + [0.0] * (N_TAPS - 2))]
PerBand = Annotated[Any, _numbers(N_BANDS)]
PerBin = Annotated[Any, _numbers(N_BINS)]
PerUpdate = Annotated[list[Number], Field(max_length=MAX_UPDATES)]
BandCentres = Annotated[list[Number], Field(min_length=N_BANDS, max_length=N_BANDS), Example(BAND_CENTRE_HZ)]
Time = Annotated[Number | None, Field(ge=0)]
Updates = Annotated[int, Field(ge=0, le=MAX_UPDATES)]


class ModelReference(TypedDict):
    """A published version of a model."""

    name: Annotated[str, Example("generic")]
    version: Annotated[int, Field(ge=1), Example(1)]
    digest: Annotated[str, Example("sha256:" + "0123456789abcdef" * 4)]


class RefinementAnswer(TypedDict):
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


class OutOfBand(TypedDict):
    """Change of level outside the scored bands, dB; positive is louder."""

    low: Annotated[Number, Example(-3.2)]
    """17.8 to 44.7 Hz."""
    high: Annotated[Number, Example(0.4)]
    """8.9 to 22.4 kHz."""


class LevelReduction(TypedDict):
    """Reduction of the reference noise's level from 20 Hz to 20 kHz, dB; positive is quieter."""

    unweighted: Annotated[Number, Example(12.0)]
    a_weighted: Annotated[Number, Example(14.7)]
    """With the A-weighting of IEC 61672-1."""


class Sensitivity(TypedDict):
    """Loss of mean noise reduction by an error of the secondary path, dB; the worse of both directions."""

    gain_1_db: Annotated[Number, Example(6.5)]
    """Level higher or lower by 1 dB."""
    delay_1_sample: Annotated[Number, Example(5.1)]
    """Later or earlier by one sample."""


class ConditionAnswer(TypedDict):
    """Predicted effect in one of several conditions."""

    label: str
    mean_noise_reduction_db: Number
    amplification_db: Number
    noise_reduction_db: PerBand
    left_out_noise_reduction_db: NotRequired[Number]
    """Mean of a filter designed on the other conditions, with `leave_one_out`."""


class LoopAnswer(TypedDict):
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


class PredictionAnswer(TypedDict):
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
    full_scale_db: NotRequired[Annotated[Number, Example(11.0)]]
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
    feedforward_noise_reduction_db: NotRequired[PerBand]
    """With a controller: the filter's share of `noise_reduction_db`."""
    feedback_noise_reduction_db: NotRequired[PerBand]
    """With a controller: its share."""
    playback_change_db: NotRequired[PerBand]
    """With a controller: by how much the loop makes what the loudspeaker plays besides, as music, louder."""
    worst_noise_reduction_db: NotRequired[Number]
    """Lowest mean of several conditions, over which the other figures are weighted means."""
    conditions: NotRequired[list[ConditionAnswer]]


class Warning_(TypedDict):
    """A limitation of an otherwise valid answer."""

    code: Annotated[str, _codes(WARNINGS), Example("prediction_from_model")]
    detail: Annotated[str, Example("no coherence was sent")]


class Timings(TypedDict):
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


class DesignAnswer(TypedDict):
    """A filter with its prediction and the record of its updates."""

    fir: Taps
    """Taps, exact in float32."""
    sample_rate: Literal[48_000]
    sign: Sign
    method: Method
    model: ModelReference
    refinement: RefinementAnswer
    prediction: PredictionAnswer
    latency_samples: NotRequired[Number]
    """As requested, if not 0; requests about this filter need it too."""
    max_gain_db: NotRequired[Number]
    """As requested, if a number other than the default; exports need it too."""
    max_louder_db: NotRequired[Number]
    """As requested, or the default of `/hybrid`; exports need it too."""
    loop: NotRequired[LoopAnswer]
    """With a `feedback`; the prediction is then that of the closed loop."""
    warnings: list[Warning_]
    timings_ms: Timings


class ScalingAnswer(TypedDict):
    """Scaling of a full-scale input for data words of as many bits as the coefficients."""

    headroom_bits: int
    """Bits by which to shift the input down so that no node overflows."""
    overflow_db: Number
    """Largest possible value of a node over a full-scale input."""
    noise_db: Number
    """RMS round-off noise at the output over full scale, with that headroom."""
    wide_noise_db: Number
    """The same for sections that feed back double-precision outputs."""


class ControllerAnswer(TypedDict):
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
    words: NotRequired[list[Any]]
    """Integers for the hardware, in units of the last bit: rows b0, b1, b2, a1, a2."""
    shift: NotRequired[list[int]]
    """Exponent of the power of two by which to multiply the words, per section."""
    scaling: NotRequired[ScalingAnswer]
    needed_number_format: NotRequired[str]
    """Least format that resolves poles as low as the controller may need, if `number_format` does not."""
    playback_sos: NotRequired[Annotated[list[Any], Example([_ROW] * 6)]]
    """Rows for what is played, of any sound: they undo `playback_change_db`."""
    playback_peak_db: NotRequired[Annotated[Number, Example(14.0)]]
    """Headroom that these rows need, their largest gain; an export's file holds them quieter by it."""


class HybridAnswer(DesignAnswer):
    """A filter and the controller beside it; prediction and loop are of both."""

    controller: ControllerAnswer
    loop: HybridLoop  # type: ignore[misc]


class ProblemDocument(TypedDict):
    """A problem document (RFC 9457)."""

    type: Annotated[str, _codes([TYPE_PREFIX + code for code in PROBLEMS])]
    title: str
    status: int
    detail: str
    """What is wrong and what to do."""
    field: NotRequired[str]
    """Dotted name of the faulty field."""


class EvaluationAnswer(TypedDict):
    """Predicted effect of a given filter."""

    prediction: PredictionAnswer
    loop: NotRequired[LoopAnswer]
    """As in a design."""
    warnings: list[Warning_]
    timings_ms: TimingsOfEvaluation


class MeasuredAnswer(TypedDict):
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


class DiagnosisEntry(TypedDict):
    """A deviation from the prediction, or `as_predicted`."""

    code: Annotated[str, _codes(CODES), Example("level_off")]
    detail: Annotated[str, Example("the secondary path is 1.01 dB louder than measured")]
    by: NotRequired[Annotated[Number, Example(1.01)]]
    """Size: samples for `delay_off`, dB for `level_off`, `leak`, `refit`, `howling`, `implausible_reduction` and
    `as_predicted`."""


class TrimAnswer(TypedDict):
    """The filter for the present secondary path."""

    gain_db: Annotated[Number, Example(-1.01)]
    """Gain over the filter of the request."""
    delay_samples: Annotated[Number, Example(0.0)]
    """Delay against the filter of the request; negative: earlier."""
    invert: Annotated[bool, Example(False)]
    predicted_noise_reduction_db: Annotated[Number, Example(21.5)]
    fir: Taps | None
    """Null for sections and taps of a chip: change their gain and delay."""
    controller: NotRequired[ControllerAnswer]
    """The controller whose loop is as designed on the present secondary path, if one runs."""


class VerificationAnswer(TypedDict):
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


class ModelDescription(TypedDict):
    """The manifest of a version, and whether it is in memory."""

    name: Annotated[str, Example("generic")]
    version: Annotated[int, Field(ge=1), Example(1)]
    digest: Annotated[str, Example("sha256:" + "0123456789abcdef" * 4)]
    resident: bool
    dataset: Annotated[str, Example("pandar")]
    split: Annotated[int | None, Example(3)]
    seed: Annotated[int, Example(0)]
    scores: Annotated[dict[str, Any], Example({})]


class ControllerDescription(TypedDict):
    """The manifest of a version of a published controller, with its coefficients and the margins on every plant."""

    name: str
    version: Annotated[int, Field(ge=1)]
    digest: str
    dataset: str
    sos: list[list[Number]]
    sample_rate: Number
    latency_us: Number
    number_format: str


class ModelList(TypedDict):
    """Published models."""

    default: Annotated[str, Example("generic")]
    aliases: Annotated[dict[str, str], Example({"live": "generic@1"})]
    models: list[ModelDescription]
    controllers: Annotated[list[ControllerDescription], Example([])]
    broken: Annotated[dict[str, str], Example({})]
    """Damaged entries of the store, with the reason."""


class UnloadedModels(TypedDict):
    """Unloaded versions."""

    unloaded: Annotated[list[ModelReference], Field(min_length=1)]


class ResidentModelsAnswer(TypedDict):
    """Versions in memory after a reload."""

    resident: Annotated[list[ModelReference], Field(min_length=1)]


class Live(TypedDict):
    """The service responds and needs no restart."""

    status: Literal["live"]


class Ready(TypedDict):
    """The service is ready for requests."""

    status: Literal["ready"]
    device: Annotated[str, Example("cpu")]
    models: list[ModelReference]


class Coefficients(TypedDict):
    """A realised filter: `taps`, or rows b0, b1, b2, 1, a1, a2 in `sos`."""

    sample_rate: Annotated[Number, Example(48_000.0)]
    form: Annotated[Literal["fir", "sos"], Example("sos")]
    taps: NotRequired[Annotated[Any, _numbers(1, MAX_TAPS)]]
    sos: NotRequired[Annotated[list[list[Number]], Example([_ROW])]]
    denominator: NotRequired[Annotated[Literal["subtracted", "added"], Example("subtracted")]]
    """Whether the hardware subtracts a1 and a2 or adds them. `words` then has them negated, `sos` never."""
    number_format: NotRequired[Annotated[str, Example("q1.23")]]
    words: NotRequired[Annotated[list[Any], Example([[3355443, -5033165, 2097152, -6710886, 2936013]])]]
    """Integers for the hardware, in units of the last bit: taps, or rows b0, b1, b2, a1, a2."""
    shift: NotRequired[Annotated[Any, Example([1])]]
    """Exponent of the power of two by which to multiply the words, or per section."""
    n_saturated: NotRequired[Annotated[int, Example(0)]]
    scaling: NotRequired[ScalingAnswer]


class ExportAnswer(TypedDict):
    """A filter as hardware runs it."""

    coefficients: Coefficients
    prediction: PredictionAnswer
    """Prediction of the realised filter, number format included."""
    controller: NotRequired[ControllerAnswer]
    """That of the request, with its words."""
    loop: NotRequired[LoopAnswer]
    """Loop of the realised filter, and of the controller, as in a design."""
    loss_db: Annotated[Number, Example(2.4)]
    """Predicted mean noise reduction of the filter of the request less that of the realised one."""
    warnings: list[Warning_]
    """Warnings about the paths and the realised filter."""
    sign: Sign
    latency_samples: Annotated[Number, Example(0.0)]
    timings_ms: TimingsOfEvaluation


class PrimaryResponse(TypedDict):
    """The primary path."""

    impulse_response: Annotated[Any, _numbers(PRIMARY_TAPS), Example([0.0, 0.5, 0.25] + [0.0] * (PRIMARY_TAPS - 3))]


class SecondaryResponse(TypedDict):
    """The secondary path."""

    impulse_response: Annotated[
        Any, _numbers(SECONDARY_TAPS), Example([0.0, 0.9, -0.3] + [0.0] * (SECONDARY_TAPS - 3))
    ]


class Complex64Spectrum(TypedDict):
    """A one-sided spectrum on the design grid."""

    complex64: Annotated[str, Example("AACAPwAAAAA=")]
    """base64 of little-endian interleaved complex64."""


class Spectra(TypedDict):
    """The paths on the design grid."""

    primary: Complex64Spectrum
    secondary: Complex64Spectrum


class CalibrationBands(TypedDict):
    """Quality of the calibration per band."""

    centre_hz: BandCentres
    coherence: Annotated[PerBand, Example([0.99] * N_BANDS)]
    noise_reduction_ceiling_db: Annotated[PerBand, Example([20.0] * N_BANDS)]
    """-10 log10(1 - coherence)."""
    secondary_snr_db: Annotated[PerBand, Example([40.0] * N_BANDS)]
    """Level of the secondary path over its estimation noise, dB."""


class FindingAnswer(TypedDict):
    """A fault, or a check that was impossible."""

    code: Annotated[str, _codes(REASONS), Example("low_snr")]
    detail: Annotated[str, Example("noise in the estimated paths costs 1.8 dB")]


class VerdictFigures(TypedDict):
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


class VerdictAnswer(TypedDict):
    """Whether the calibration can be used."""

    passed: Annotated[bool, Example(False)]
    reasons: list[FindingAnswer]
    """Faults of the calibration."""
    not_judged: Annotated[list[FindingAnswer], Example([])]
    """Checks that were impossible, with the reason."""
    model: ModelReference
    """Model with whose support listeners the paths were compared."""
    figures: VerdictFigures


class CalibrationTimings(TypedDict):
    """Milliseconds."""

    queue: Annotated[Number, Example(0.1)]
    decode: Annotated[Number, Example(21.0)]
    estimate: Annotated[Number, Example(240.0)]
    encode: Annotated[Number, Example(2.1)]
    total: Annotated[Number, Example(320.0)]


class CalibrationAnswer(TypedDict):
    """Paths, coherence and a verdict; a valid body for `/refine`."""

    primary: PrimaryResponse
    secondary: SecondaryResponse
    sample_rate: Literal[48_000]
    sign: Sign
    coherence: Annotated[PerBin, Example([0.99] * N_BINS)]
    """Magnitude-squared coherence of x and e with gain 0, per bin of the design grid."""
    uncertainty: Annotated[Any, _numbers(N_UNCERTAINTY), Example([0.001] * N_UNCERTAINTY)]
    """Unknown over known power in 31 bands from 20 Hz to 20 kHz of the primary, then of the secondary path."""
    feedback: NotRequired[SecondaryResponse]
    """Path from loudspeaker to outer microphone, if takes have a `drive`."""
    spectra: Spectra
    bands: CalibrationBands
    verdict: VerdictAnswer
    timings_ms: CalibrationTimings
    model: NotRequired[str]
    """As requested."""


# Manifests may have further fields.
_OPEN = (ModelDescription, ControllerDescription)
for _kind in [item for item in vars().values() if is_typeddict(item)]:
    # Docstrings of fields are their descriptions.
    _kind.__pydantic_config__ = (
        ConfigDict(extra="allow") if _kind in _OPEN else ConfigDict(use_attribute_docstrings=True)
    )
