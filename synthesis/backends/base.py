"""The interface between the method and the processor: inputs and results of a backend, as NumPy arrays.

A backend holds one model (a generator's weights, its reference spectrum, and the path uncertainty estimated from
its support listeners) and turns the measured paths of one or more ears into control filters. Its callers, such as
the service, depend on this module and not on torch, CUDA or C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from measurement.prior import PathPrior
from synthesis.backends.methods import METHODS
from synthesis.errors import InvalidOption, SynthesisError
from synthesis.gain_curve import GainCurve
from synthesis.generator_config import GeneratorConfig
from synthesis.plausibility import Comparison, SupportPrior
from synthesis.prediction import Prediction
from synthesis.profiles import MAX_UPDATES, PROFILES

if TYPE_CHECKING:
    from measurement.prior import PathPrior

Float32 = NDArray[np.float32]
Complex64 = NDArray[np.complex64]

DEFAULT_MAX_GAIN_DB = 30.0
"""Default ceiling on |W|. Below 50 Hz, where the secondary path rolls off, good filters reach 24 to 38 dB."""


@dataclass(frozen=True, eq=False)
class ModelParameters:
    """The numbers of a checkpoint, from which a backend is created.

    weights: float32 arrays under the names of the torch module's state dict. reference_psd: mean square per bin of
    the reference noise, float32 [16385]. band_uncertainty: float32 [2, 31], as in `estimate_uncertainty`.
    path_prior, support: statistics of the paths of the support (the persons that the model was trained on), which
    estimate and judge measurements; None for a model that was published without them.
    """

    config: GeneratorConfig
    weights: Mapping[str, Float32]
    reference_psd: Float32
    band_uncertainty: Float32
    path_prior: PathPrior | None = None
    support: SupportPrior | None = None


MAX_CONDITIONS = 16
MAX_LATENCY_SAMPLES = 1024.0
DEFAULT_GAIN_MARGIN_DB, DEFAULT_PHASE_MARGIN_DEG = 6.0, 30.0


@dataclass(frozen=True, eq=False)
class Condition:
    """One pair of paths that a filter must serve: a seating, a direction, a way of wearing.

    primary, secondary: each either a one-sided spectrum on the design grid, complex64 [16385], or a causal impulse
    response at 48 kHz, float32 [1 to 32768]. coherence: magnitude-squared coherence of the calibration, float32
    [16385], 0 to 1; None if unknown. All numbers are finite; neither path is all zero. feedback: loudspeaker to
    outer microphone, as `secondary`; None: the loudspeaker is not heard there. uncertainty: float32 [2, 31], >= 0,
    used in place of the coherence: per band from 20 Hz to 20 kHz, the power that a calibration could not know over
    that which it knows, of the primary path (row 0) and the secondary path (row 1). resembles: whether the model's
    support has such paths, so that its own uncertainty holds where neither was sent; None: the backend judges.
    weight: above 0, relative to the other conditions. label: names the condition in answers and errors.
    """

    primary: Float32 | Complex64
    secondary: Float32 | Complex64
    coherence: Float32 | None = None
    uncertainty: Float32 | None = field(default=None, kw_only=True)
    resembles: bool | None = field(default=None, kw_only=True)
    feedback: Float32 | Complex64 | None = field(default=None, kw_only=True)
    weight: float = field(default=1.0, kw_only=True)
    label: str = field(default="", kw_only=True)


@dataclass(frozen=True, eq=False)
class DesignInput(Condition):
    """What one filter is designed for; elsewhere called an ear.

    The inherited fields are its first condition, usually the only one. Further conditions, which the same filter
    must serve, are in `others`.

    reference_psd: mean square per bin of the noise to design for, float32 [16385]; None: the model's reference
    noise. max_gain_db: ceiling on |W|, a number or a curve; infinity: none. others: up to 15 further conditions.
    latency_samples: delay of the signal chain that the secondary paths do not contain, 0 to 1024, fractions
    included. min_gain_margin_db, min_phase_margin_deg: smallest margins of the loop through any feedback path.
    """

    reference_psd: Float32 | None = None
    max_gain_db: float | GainCurve = DEFAULT_MAX_GAIN_DB
    others: tuple[Condition, ...] = field(default=(), kw_only=True)
    latency_samples: float = field(default=0.0, kw_only=True)
    min_gain_margin_db: float = field(default=DEFAULT_GAIN_MARGIN_DB, kw_only=True)
    min_phase_margin_deg: float = field(default=DEFAULT_PHASE_MARGIN_DEG, kw_only=True)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions, this input's own first."""
        return (self, *self.others)


@dataclass(frozen=True)
class DesignOptions:
    """How a filter is designed.

    method: a name in METHODS. n_updates: Gauss-Newton updates, 0 to 8. profile: a name in PROFILES. leave_one_out:
    with several conditions, also predict for each what a filter designed on the others does there. n_conditions,
    n_feedbacks: conditions of each input, and those with a feedback path, used only to estimate how long a design
    takes. with_wmmse: also predict roughly what
    WMMSE would do; a backend for which that is as much work as another design ignores this option.
    """

    method: str = "prime"
    n_updates: int = 0
    profile: str = "fast"
    leave_one_out: bool = False
    n_conditions: int = 1
    n_feedbacks: int = 0
    with_wmmse: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidOption for an unknown method or profile, or a number of updates outside its range."""
        if self.method not in METHODS:
            raise InvalidOption(
                f"method: {self.method!r} does not exist; use one of {', '.join(METHODS)}", "method"
            )
        if self.profile not in PROFILES:
            known = ", ".join(PROFILES)
            raise InvalidOption(f"profile: {self.profile!r} does not exist; use one of {known}", "profile")
        if not 0 <= self.n_updates <= MAX_UPDATES:
            raise InvalidOption(f"k: {self.n_updates} updates were requested; use 0 to {MAX_UPDATES}", "k")


@dataclass(frozen=True)
class Loop:
    """The loop that the filter closes through the feedback path; with several conditions, the worst of each figure.

    gain_margin_db: by how much the loop may become louder before it howls. phase_margin_deg: distance of its phase
    from -1 where its gain is one; 180 where it never is. peak_db, peak_hz: its largest gain |W F|. loss_db: mean
    noise reduction that the margins cost.
    """

    stable: bool
    gain_margin_db: float
    phase_margin_deg: float
    peak_db: float
    peak_hz: float
    loss_db: float = 0.0


@dataclass(frozen=True)
class RefinementRecord:
    """Record of the Gauss-Newton updates of one filter.

    applied: updates that changed the filter. stopped: `budget` (all requested updates were applied), `converged`
    (the best trial step lowered J by less than 1e-5 max(|J|, 1)) or `no_decrease` (no trial step lowered J).
    objective: J before the first and after each applied update, applied + 1 values. step_scale: accepted fraction
    of each step; pcg_residual: relative residual of its linear system; applied values each.
    """

    applied: int
    stopped: str
    objective: list[float]
    step_scale: list[float]
    pcg_residual: list[float]


UPDATES_BRING_DB = 1.0
"""Updates never brought a Wiener filter that was predicted this far below the generator's to 0.5 dB above it (24
probes, 30 measured ears)."""

WMMSE_TOLERANCE_DB = 0.1
"""Bound on the error of a WmmsePrediction. The largest in 660 calibrations of 30 measured ears, half of them noisy,
was 0.035 dB."""


class WmmsePrediction(NamedTuple):
    """What WMMSE would do, within WMMSE_TOLERANCE_DB, without updates and with as many as the design has; the
    latter is not computed where UPDATES_BRING_DB rules out that they help.

    nominal_noise_reduction_db: as of `Prediction`, the higher of both. max_gain_db: largest |W| in dB, the higher
    of both.
    """

    nominal_noise_reduction_db: float
    max_gain_db: float


@dataclass(frozen=True, eq=False)
class Design:
    """One ear's filter, its updates and its prediction.

    taps: float32 [2048] for e = d - s * w * x. times_ms: milliseconds per stage (`conventions.STAGES`), measured
    for the whole batch that this design was part of; stages that were not timed separately are absent. loop: only
    with a feedback path; the prediction is then of the closed loop. ceiling_cost_db: predicted noise reduction that
    the requested ceiling on |W| costs, compared with the default ceiling; None if the filter was below it anyway.
    wmmse: prediction of WMMSE for the same ear; None if it was not requested or not computed. comparison: of the
    paths with the support's; None if not computed.
    """

    taps: Float32
    refinement: RefinementRecord
    prediction: Prediction
    times_ms: dict[str, float] = field(default_factory=dict)
    loop: Loop | None = None
    ceiling_cost_db: float | None = None
    wmmse: WmmsePrediction | None = None
    comparison: Comparison | None = None


class Backend(Protocol):
    """One model on one kind of processor. Returned arrays belong to the caller: later calls do not change them."""

    name: str
    """`reference`, `cpu` or `cuda`."""

    max_batch: int
    """Largest number of ears in one call."""

    is_thread_safe: bool
    """Whether several threads may call at the same time."""

    def design(self, inputs: Sequence[DesignInput], options: DesignOptions) -> list[Design | SynthesisError]:
        """Design a filter for each ear and predict its effect; results are in the order of `inputs`.

        An ear whose design fails has the error in its place: NonFiniteFilter if its filter or prediction is not
        finite. The other ears are not affected.
        """
        ...

    def predict(
        self, inputs: Sequence[DesignInput], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """Predict the effect of existing filters on estimated paths.

        A filter is its taps, float32 [2048], or, for what `create_backend` returns, its response on the design
        grid, complex64 [16385]: of sections, of another rate, of any length.
        """
        ...

    def evaluate(self, inputs: Sequence[DesignInput], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """As `predict`, but on true paths: they have no uncertainty, and any coherence is ignored."""
        ...
