"""The JSON answers, declared once: encoders return these types, and the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, WithJsonSchema, with_config
from typing_extensions import TypedDict

from hardware.short_fir import MAX_TAPS
from measurement.calibration import PRIMARY_TAPS, SECONDARY_TAPS
from measurement.checks import REASONS
from measurement.verify import CODES
from service.api.options import Number
from service.api.paths import N_UNCERTAINTY
from service.api.request_types import MAX_ITEMS
from service.api.warnings import WARNINGS
from service.errors import PROBLEMS, TYPE_PREFIX
from synthesis.bands import AMP_BANDS, nominal_hz
from synthesis.conventions import N_BINS, N_TAPS
from synthesis.options import Method, Sign
from synthesis.profiles import MAX_UPDATES

BAND_CENTRE_HZ = [nominal_hz(n) for n in AMP_BANDS]
N_BANDS = len(BAND_CENTRE_HZ)

_documented = with_config(ConfigDict(use_attribute_docstrings=True))


def _numbers(low: int, high: int | None = None) -> Any:
    """The JSON Schema of a list of numbers, which is a NumPy array until it is encoded."""
    limits = {"minItems": low, "maxItems": low if high is None else high}
    return WithJsonSchema({"type": "array", "items": {"type": "number", "format": "float"}, **limits})


Taps = Annotated[Any, _numbers(N_TAPS)]
PerBand = Annotated[Any, _numbers(N_BANDS)]
PerBin = Annotated[Any, _numbers(N_BINS)]
PerUpdate = Annotated[list[Number], Field(max_length=MAX_UPDATES)]
BandCentres = Annotated[list[Number], Field(min_length=N_BANDS, max_length=N_BANDS)]
Time = Annotated[Number | None, Field(ge=0)]
Updates = Annotated[int, Field(ge=0, le=MAX_UPDATES)]


@_documented
class ModelReference(TypedDict):
    """A published version of a model."""

    name: str
    version: Annotated[int, Field(ge=1)]
    digest: str


@_documented
class RefinementAnswer(TypedDict):
    """How the Gauss-Newton updates went."""

    requested: Updates
    applied: Updates
    stopped: Literal["budget", "converged", "no_decrease", "deadline"]
    """budget: all updates were applied; converged: the best trial step lowered the objective by too little;
    no_decrease: no trial step lowered it; deadline: there was no time for more."""
    objective: Annotated[list[Number], Field(min_length=1, max_length=MAX_UPDATES + 1)]
    """Before and after each applied update."""
    step_scale: PerUpdate
    pcg_residual: PerUpdate


@_documented
class OutOfBand(TypedDict):
    """Change of level outside the scored bands, dB; positive is louder."""

    low: Number
    """17.8 to 44.7 Hz."""
    high: Number
    """8.9 to 22.4 kHz."""


@_documented
class LevelReduction(TypedDict):
    """Reduction of the reference noise's level from 20 Hz to 20 kHz, dB; positive is quieter."""

    unweighted: Number
    a_weighted: Number
    """With the A-weighting of IEC 61672-1."""


@_documented
class Sensitivity(TypedDict):
    """Loss of mean noise reduction where the secondary path is not the measured one, dB; the worse of both
    directions."""

    gain_1_db: Number
    """Its level is 1 dB higher or lower."""
    delay_1_sample: Number
    """It is one sample later or earlier."""


@_documented
class ConditionAnswer(TypedDict):
    """What the filter will do in one of several conditions."""

    label: str
    mean_noise_reduction_db: Number
    amplification_db: Number
    noise_reduction_db: PerBand
    left_out_noise_reduction_db: NotRequired[Number]
    """Mean of a filter designed on the other conditions, with `leave_one_out`."""


@_documented
class LoopAnswer(TypedDict):
    """The loop of filter and feedback path; of several conditions, the worst of each figure."""

    stable: bool
    gain_margin_db: Number
    """By how much the loop may become louder before it howls; at most 120."""
    phase_margin_deg: Number
    """Distance of the loop's phase from -1 where its gain is one; 180 where it never is."""
    peak_db: Number
    """Largest loop gain |W F|."""
    peak_hz: Number
    loss_db: Number
    """Mean noise reduction that keeping the margins costs."""


@_documented
class PredictionAnswer(TypedDict):
    """What the filter will do."""

    basis: Literal["coherence", "model", "response"]
    """Where the uncertainty of the paths comes from: the coherence or uncertainty that was sent, the model's
    support listeners, or the ends of the responses."""
    band_centre_hz: BandCentres
    """Nominal one-third-octave bands."""
    noise_reduction_db: PerBand
    """Per band; positive is quieter."""
    mean_noise_reduction_db: Number
    """Mean over the bands from 50 Hz to 5 kHz that the system has, `counted_bands_hz`."""
    interval_db: Annotated[Number, Field(ge=0)]
    """Half-width of an interval about that mean which holds the true one in at least 80 % of cases; nine in ten of
    the listeners and recordings that it was checked on."""
    amplification_db: Number
    """Mean over the 23 bands of the increase in level, dB; bands that become quieter count as 0."""
    wide_amplification_db: Number
    """The same over the 31 bands from 20 Hz to 20 kHz."""
    out_of_band_db: OutOfBand
    level_reduction_db: LevelReduction
    sensitivity_db: Sensitivity
    max_gain_db: Number
    """Largest |W|; -200 of a filter that is zero."""
    control_rms: Number
    """RMS of the loudspeaker signal, in the unit of the reference."""
    unknown_bands_hz: list[Number]
    """Nominal centres of the one-third-octave bands, 20 Hz to 20 kHz, of which the measurement says nothing: their
    mean coherence is below 0.06, an uncertainty above 1, or the primary path 60 dB below its loudest band, as above
    half the rate of a converter. They weigh nothing in a design, which keeps them from becoming louder."""
    counted_bands_hz: list[Number]
    """Nominal centres of the bands of `mean_noise_reduction_db`: those from 50 Hz to 5 kHz in which the system is not
    silent. `amplification_db` leaves silent bands out, too."""
    worst_noise_reduction_db: NotRequired[Number]
    """Of several conditions, the lowest mean; the other figures are weighted means over them."""
    conditions: NotRequired[list[ConditionAnswer]]


@_documented
class Warning_(TypedDict):
    """A limitation of an otherwise valid answer."""

    code: Annotated[str, WithJsonSchema({"enum": list(WARNINGS)})]
    detail: str


@_documented
class Timings(TypedDict):
    """Milliseconds; null: not timed separately."""

    decode: Time
    queue: Time
    path_ratio: Time
    generate: Time
    reconstruct: Time
    refine: Time
    predict: Time
    encode: Time
    core: Time
    """path_ratio + generate + reconstruct + refine."""
    total: Time
    """First byte handled to body encoded."""


@_documented
class DesignedFilter(TypedDict, total=False):
    """The filter, its prediction and how it was made."""

    fir: Taps
    """Taps of the causal filter; reading them as float32 is exact."""
    sample_rate: Literal[48_000]
    sign: Sign
    method: Method
    model: ModelReference
    refinement: RefinementAnswer
    prediction: PredictionAnswer
    latency_samples: NotRequired[Number]
    """As asked for, if there was one: a request about this filter sends it on."""
    loop: NotRequired[LoopAnswer]
    """With a `feedback`; the prediction is of the closed loop then."""
    warnings: list[Warning_]
    timings_ms: Timings


@_documented
class ProblemDocument(TypedDict):
    """A problem document (RFC 9457)."""

    type: Annotated[str, WithJsonSchema({"enum": [TYPE_PREFIX + code for code in PROBLEMS]})]
    title: str
    status: Annotated[int, WithJsonSchema({"enum": sorted({status for status, _ in PROBLEMS.values()})})]
    detail: str
    """What is wrong and what to do."""
    field: NotRequired[str]
    """The field at fault, as a dotted name."""


@_documented
class ItemAnswer(DesignedFilter, total=False):
    """A design, or the members of a problem document in its place."""

    type: str
    title: str
    status: int
    detail: str
    field: str


@_documented
class DesignAnswer(DesignedFilter, total=False):
    """A design; of a request with `items`, these alone."""

    items: Annotated[list[ItemAnswer], Field(min_length=1, max_length=MAX_ITEMS)]
    """The answers to several requests, in order."""


@_documented
class EvaluationAnswer(TypedDict):
    """Predicted effect of a given filter."""

    prediction: PredictionAnswer
    loop: NotRequired[LoopAnswer]
    """As of a design."""
    warnings: list[Warning_]
    timings_ms: Timings


@_documented
class MeasuredAnswer(TypedDict):
    """What the filter does on the ear: medians over blocks of the recordings."""

    band_centre_hz: BandCentres
    noise_reduction_db: PerBand
    mean_noise_reduction_db: Number
    amplification_db: Number
    interval_db: Number
    """Half-width of the 80 % interval of the mean, from the scatter between blocks."""
    n_blocks: Annotated[int, Field(ge=1)]
    """Of the state that has fewer."""


@_documented
class DiagnosisEntry(TypedDict):
    """One thing that is off, or `as_predicted`."""

    code: Annotated[str, WithJsonSchema({"enum": list(CODES)})]
    detail: str
    by: NotRequired[Number]
    """How much: dB of `level_off`, `leak`, `refit`, `howling`, `implausible_reduction` and `as_predicted`, samples
    of `delay_off`."""


@_documented
class TrimAnswer(TypedDict):
    """The filter for the secondary path as it is now."""

    gain_db: Number
    """Of the trimmed filter over the one that was sent: the secondary path's change, undone."""
    delay_samples: Number
    """The same; negative: the filter plays earlier."""
    invert: bool
    predicted_noise_reduction_db: Number
    fir: Taps


@_documented
class VerificationAnswer(TypedDict):
    """What a filter does on the ear, and what is off."""

    measured: MeasuredAnswer
    predicted_noise_reduction_db: Number
    deviation_db: Number
    """Measured less predicted mean noise reduction."""
    band_deviation_db: PerBand
    diagnosis: Annotated[list[DiagnosisEntry], Field(min_length=1)]
    trim: TrimAnswer | None
    """null: no gain and delay put it right; measure again."""
    timings_ms: Timings


@_documented
class ModelDescription(TypedDict):
    """The manifest of a version, and whether it is in memory."""

    name: str
    version: Annotated[int, Field(ge=1)]
    digest: str
    resident: bool
    dataset: str
    split: int | None
    seed: int
    scores: dict[str, Any]


ModelDescription.__pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[attr-defined]


@_documented
class ModelList(TypedDict):
    """Published models."""

    default: str
    aliases: dict[str, str]
    models: list[ModelDescription]
    broken: dict[str, str]
    """Damaged entries of the store, each with the reason."""


@_documented
class UnloadedModels(TypedDict):
    """Unloaded versions."""

    unloaded: Annotated[list[ModelReference], Field(min_length=1)]


@_documented
class ResidentModelsAnswer(TypedDict):
    """Versions in memory after a reload."""

    resident: Annotated[list[ModelReference], Field(min_length=1)]


@_documented
class Live(TypedDict):
    """The event loop answers, and no restart is needed."""

    status: Literal["live"]


@_documented
class Ready(TypedDict):
    """The service is ready for requests."""

    status: Literal["ready"]
    device: str
    models: list[ModelReference]


@_documented
class ScalingAnswer(TypedDict):
    """How a full-scale input fits data words of as many bits as the coefficients."""

    headroom_bits: int
    """By which to shift the input down so that no node overflows, whatever the input."""
    overflow_db: Number
    """Largest value of any node over a full-scale input."""
    noise_db: Number
    """Round-off noise at the output, RMS over full scale, with that headroom."""
    wide_noise_db: Number
    """The same where the sections' feedback keeps the accumulator's width (double-precision biquads)."""


@_documented
class Coefficients(TypedDict):
    """A realised filter: `taps`, or rows b0, b1, b2, 1, a1, a2 in `sos`."""

    sample_rate: Number
    form: Literal["fir", "sos"]
    taps: NotRequired[Annotated[Any, _numbers(1, MAX_TAPS)]]
    sos: NotRequired[list[list[Number]]]
    denominator: NotRequired[Literal["subtracted", "added"]]
    """What the target does with a1 and a2 of its memory: where it adds them, `words` has them negated; `sos` never."""
    number_format: NotRequired[str]
    words: NotRequired[list[Any]]
    """What the hardware holds, in units of the format's last bit: taps, or rows b0, b1, b2, a1, a2."""
    shift: NotRequired[Any]
    """Power of two that the words, or each section's words, are to be multiplied by."""
    n_saturated: NotRequired[int]
    scaling: NotRequired[ScalingAnswer]


@_documented
class ExportAnswer(TypedDict):
    """A filter as hardware runs it."""

    coefficients: Coefficients
    prediction: PredictionAnswer
    """Of the realised filter, its number format included."""
    loop: NotRequired[LoopAnswer]
    """Of the realised filter, as of a design."""
    loss_db: Number
    """Predicted mean noise reduction of the filter that was sent, less that of the realised one."""
    warnings: list[Warning_]
    """On the paths and the realised filter."""
    sign: Sign
    timings_ms: Timings


@_documented
class PrimaryResponse(TypedDict):
    """The primary path."""

    impulse_response: Annotated[Any, _numbers(PRIMARY_TAPS)]


@_documented
class SecondaryResponse(TypedDict):
    """The secondary path."""

    impulse_response: Annotated[Any, _numbers(SECONDARY_TAPS)]


@_documented
class Complex64Spectrum(TypedDict):
    """A one-sided spectrum on the design grid."""

    complex64: str
    """base64 of little-endian interleaved complex64."""


@_documented
class Spectra(TypedDict):
    """The same paths on the design grid."""

    primary: Complex64Spectrum
    secondary: Complex64Spectrum


@_documented
class CalibrationBands(TypedDict):
    """Quality of the calibration per band."""

    centre_hz: BandCentres
    coherence: PerBand
    noise_reduction_ceiling_db: PerBand
    """-10 log10(1 - coherence)."""
    secondary_snr_db: PerBand
    """Level of the secondary path over its estimation noise, dB."""


@_documented
class FindingAnswer(TypedDict):
    """A fault that was found, or a check that was not possible."""

    code: Annotated[str, WithJsonSchema({"enum": list(REASONS)})]
    detail: str


@_documented
class VerdictFigures(TypedDict):
    """The figures that the verdict is based on."""

    clipped_share: Number
    """Largest share of a signal's samples at its extremes."""
    lead_samples: Number
    """Delay of the primary path minus that of the secondary path, samples."""
    noise_cost_db: Number
    """Noise reduction that noise in the estimated paths costs, dB."""
    level_db: Number | None
    """Level of the secondary path relative to the support's, dB."""
    delay_samples: Number | None
    """Delay of the secondary path relative to the support's, samples."""
    distance: Number | None
    """How unlike the support's the paths are: 3 to 140 for measured ears."""
    tail_db: Number
    """Energy in the last eighth of the secondary path relative to its total, dB."""
    window: int
    """Samples of a window."""
    n_frames: int
    """Number of windows averaged in the state that has fewer."""


@_documented
class VerdictAnswer(TypedDict):
    """Whether the calibration can be used."""

    passed: bool
    reasons: list[FindingAnswer]
    """Faults of the calibration."""
    not_judged: list[FindingAnswer]
    """Checks that were not possible, and why."""
    model: ModelReference
    """The model whose support listeners the paths were compared with."""
    figures: VerdictFigures


@_documented
class CalibrationTimings(TypedDict):
    """Milliseconds."""

    queue: Number
    decode: Number
    estimate: Number
    encode: Number
    total: Number


@_documented
class CalibrationAnswer(TypedDict):
    """Paths, coherence and a verdict; a valid body for `/refine`."""

    primary: PrimaryResponse
    secondary: SecondaryResponse
    sample_rate: Literal[48_000]
    sign: Sign
    coherence: PerBin
    """Of x and e with gain 0, per bin of the design grid."""
    uncertainty: NotRequired[Annotated[Any, _numbers(N_UNCERTAINTY)]]
    """Unknown over known power of the primary path in 31 bands from 20 Hz to 20 kHz, then of the secondary path,
    without the error microphone's own noise. Missing where the takes with another gain do not repeat the probe
    of those with gain 0."""
    feedback: NotRequired[SecondaryResponse]
    """Loudspeaker to outer microphone, where takes have a `drive`."""
    spectra: Spectra
    bands: CalibrationBands
    verdict: VerdictAnswer
    timings_ms: CalibrationTimings
    model: NotRequired[str]
    """As requested."""
