"""Answers about filters: designs, predictions, controllers and exports."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from prime_anc import plots
from prime_anc.answers.model import (
    N_BANDS,
    Answer,
    BandCentres,
    Numbers,
    PerBand,
    PerUpdate,
    Taps,
    Time,
    Updates,
    Values,
)
from prime_anc.fields import Absent, Example, Number
from prime_anc.method.bands import BAND_CENTRE_HZ
from prime_anc.method.conventions import MAX_TAPS, STAGES
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.options import Method, Sign

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = [0.8, -1.2, 0.5, 1.0, -1.6, 0.7]


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


# Frequencies and values of an option's curve, by the names of both.
CurvePoints = dict[str, list[Number]]


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
    max_gain_db: Absent[Annotated[Number | CurvePoints, Example(24.1)]] = None
    """As requested, if other than the default; exports need it too."""
    band_weights: Absent[
        Annotated[CurvePoints, Example({"frequency_hz": [100.0, 1000.0], "weight": [1.0, 2.0]})]
    ] = None
    """As requested; exports need them too."""
    risk_weight: Absent[Number] = None
    """As requested; exports need it too."""
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


class EvaluationAnswer(_Predicted):
    """Predicted effect of a given filter."""

    prediction: PredictionAnswer
    loop: Absent[LoopAnswer] = None
    """As in a design."""
    warnings: list[Warning_]
    timings_ms: TimingsOfEvaluation


class Coefficients(Answer):
    """A realised filter: `taps`, or rows b0, b1, b2, 1, a1, a2 in `sos`."""

    sample_rate: Annotated[Number, Example(48_000.0)]
    form: Annotated[Literal["fir", "sos"], Example("sos")]
    taps: Absent[Annotated[Values, Numbers(1, MAX_TAPS, np.float64)]] = None
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
