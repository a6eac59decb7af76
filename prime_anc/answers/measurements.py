"""Answers about recordings: calibrations and verifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from prime_anc import plots
from prime_anc.answers.designs import ControllerAnswer, ModelReference, TimingsOfEvaluation
from prime_anc.answers.model import N_BANDS, Answer, BandCentres, Numbers, PerBand, PerBin, Taps, Values
from prime_anc.fields import Absent, Example, Number
from prime_anc.method.bands import BAND_CENTRE_HZ, N_UNCERTAINTY
from prime_anc.method.conventions import N_BINS, PRIMARY_TAPS, SECONDARY_TAPS
from prime_anc.options import Sign

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def __repr__(self) -> str:
        reached_db = self.predicted_noise_reduction_db + self.deviation_db
        codes = ", ".join(item.code for item in self.diagnosis)
        said = f"{self.predicted_noise_reduction_db:.1f} ± {self.predicted_interval_db:.1f} dB predicted"
        return f"<VerificationAnswer: {reached_db:.1f} dB of noise reduction, {said}; found: {codes}>"


class PrimaryResponse(Answer):
    """The primary path."""

    impulse_response: Annotated[
        Values, Numbers(PRIMARY_TAPS), Example([0.0, 0.5, 0.25] + [0.0] * (PRIMARY_TAPS - 3))
    ]


class SecondaryResponse(Answer):
    """The secondary path."""

    impulse_response: Annotated[
        Any, Numbers(SECONDARY_TAPS), Example([0.0, 0.9, -0.3] + [0.0] * (SECONDARY_TAPS - 3))
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
    uncertainty: Annotated[Values, Numbers(N_UNCERTAINTY), Example([0.001] * N_UNCERTAINTY)]
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
