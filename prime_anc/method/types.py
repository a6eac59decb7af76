"""Types of a design: paths, problem, options, model, result. Arrays are NumPy's, on every processor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, columns
from prime_anc.method.errors import InvalidOption, SynthesisError
from prime_anc.method.methods import METHODS, Path
from prime_anc.method.profiles import MAX_UPDATES, PROFILES
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.support.findings import Finding
from prime_anc.method.support.wearing import WearingChange
from prime_anc.options import DEFAULTS, ProblemFields

if TYPE_CHECKING:
    from prime_anc.core import Core
    from prime_anc.measure.prior import PathPrior
    from prime_anc.method.loops.controller import Controller
    from prime_anc.method.posing import OpenLoop

Float32 = NDArray[np.float32]
Complex64 = NDArray[np.complex64]

MAX_CONDITIONS = 16

# Increase of a band's level (dB) below which it does not become louder.
NOT_LOUDER_DB = 0.05

# What the uncertainty of paths is known from, in the core's order (core/predict.h): the paths are the true ones; a
# calibration or the caller; a coherence; the model's listeners; the ends of the responses.
KnownFrom = Literal["truth", "calibration", "coherence", "model", "response"]
BASES: tuple[KnownFrom, ...] = get_args(KnownFrom)
Basis = Literal["exact", "coherence", "model", "response"]
Replaced = Literal["not_finite", "predicted_worse"]


@dataclass(frozen=True, eq=False)
class ModelParameters:
    """The numbers of a checkpoint."""

    config: GeneratorConfig
    # float32 arrays under the names of the torch module's state dict.
    weights: Mapping[str, Float32]
    # Mean square per bin of the reference noise, float32 [16385].
    reference_psd: Float32
    # Result of `learn_uncertainty`, float32 [31].
    band_uncertainty: Float32
    # Statistics of the paths of the model's training persons; None if published without them.
    path_prior: PathPrior | None = None
    support: SupportPrior | None = None
    # How the support's secondary paths change by wearing.
    wearing: tuple[WearingChange, ...] = ()


class Known(NamedTuple):
    """What is known of a condition's paths besides themselves."""

    # Per band from 20 Hz to 20 kHz, unknown over known power of the primary (row 0) and the secondary path (row 1),
    # float32 [2, 31].
    uncertainty: Float32
    basis: KnownFrom
    # Half-width of the interval of a prediction from such responses, for the bases `model` and `response`.
    ends_interval_db: float = 0.0
    # Bands in which the system is silent, which no mean counts, bool [31]; None: none.
    silent: NDArray[np.bool_] | None = None
    # Whether the caller has stated that the paths are exact.
    is_exact: bool = False

    @property
    def assumed(self) -> Float32:
        """Return the uncertainty that a filter is designed for, [2, 31].

        Responses that were sent alone may be exact: what their ends show counts in the prediction alone.
        """
        if self.basis != "response":
            return self.uncertainty
        found = np.zeros_like(self.uncertainty)
        if self.silent is not None:
            found[:, self.silent] = self.uncertainty[:, self.silent]
        return found

    @property
    def stated_basis(self) -> Basis:
        """Return the basis as answers state it."""
        if self.is_exact:
            return "exact"
        return self.basis if self.basis == "model" or self.basis == "response" else "coherence"


# Of paths that nothing is known to be wrong with.
NOT_JUDGED = Known(np.zeros((2, len(WIDE_BANDS)), np.float32), "truth")


@dataclass(frozen=True, eq=False)
class Paths:
    """Acoustic paths of one condition (a seating, a direction, a way of wearing), with their uncertainty.

    All numbers are finite, and no path is all zero.
    """

    # Outer to error microphone.
    primary: Path
    # Loudspeaker to error microphone.
    secondary: Path
    # Magnitude-squared coherence of the calibration, 0 to 1, float32 [16385]; None if unknown.
    coherence: Float32 | None = None
    # Per band from 20 Hz to 20 kHz, unknown over known power of the primary (row 0) and the secondary path (row 1):
    # float32 [2, 31], >= 0; replaces the coherence.
    uncertainty: Float32 | None = field(default=None, kw_only=True)
    # Loudspeaker to outer microphone; None: the loudspeaker is not audible there.
    feedback: Path | None = field(default=None, kw_only=True)
    # Weight above 0, relative to other conditions.
    weight: float = field(default=1.0, kw_only=True)
    # Name of the condition in answers and errors.
    label: str = field(default="", kw_only=True)


@dataclass(frozen=True, eq=False)
class Problem(ProblemFields):
    """The problem that a filter solves, with its options; a ceiling may be infinite."""

    # 1 to MAX_CONDITIONS conditions for the filter.
    conditions: tuple[Paths, ...]
    # Mean square per bin of the noise, float32 [16385]; None: the model's reference noise.
    reference_psd: Float32 | None = None
    # Feedback controller that runs beside the filter.
    controller: Controller | None = None

    @property
    def shares(self) -> NDArray[np.float64]:
        """Return the weights of the conditions, with sum one."""
        weights = np.array([condition.weight for condition in self.conditions])
        return weights / weights.sum()

    def name_of(self, n: int) -> str:
        """Return a condition's name for answers and errors."""
        label = self.conditions[n].label
        return f"conditions.{n}" + (f" ({label})" if label else "")

    def named(self, error: SynthesisError, n: int) -> SynthesisError:
        """Add a condition's name to its error, if there are several."""
        if len(self.conditions) == 1:
            return error
        field = f"conditions.{n}" + (f".{error.field}" if error.field else "")
        return type(error)(f"{self.name_of(n)}: {error}", field)


@dataclass(frozen=True)
class DesignOptions:
    """Options of the design, and counts for estimates of its time."""

    # A name in METHODS.
    method: str = DEFAULTS.method
    # Gauss-Newton updates, 0 to 8.
    n_updates: int = 0
    # A name in PROFILES.
    profile: str = DEFAULTS.profile
    # Only with several conditions.
    leave_one_out: bool = DEFAULTS.leave_one_out
    # Conditions of a problem, and those with a feedback path: only for estimates of a design's time.
    n_conditions: int = 1
    n_feedbacks: int = 0

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
    """The loop L = W F + S K of filter and controller; of several conditions, the worst of each figure."""

    stable: bool
    # Gain that the loop has left before it howls.
    gain_margin_db: float
    # Distance of the loop's phase from -1 where its gain is one; 180 if it never is.
    phase_margin_deg: float
    # Largest |L|, and its frequency.
    peak_db: float
    peak_hz: float
    # Largest 1 / |1 + L|, and its frequency.
    max_sensitivity_db: float
    nearest_hz: float
    # Mean noise reduction that the margins cost.
    loss_db: float = 0.0


@dataclass(frozen=True)
class RefinementRecord:
    """Record of the Gauss-Newton updates of one filter."""

    # Updates that changed the filter.
    applied: int
    # `budget` (all requested updates were applied), `converged` (the best trial step lowered J by less than
    # 1e-5 max(|J|, 1)) or `no_decrease` (no trial step lowered J).
    stopped: str
    # J before the first and after each applied update, applied + 1 values.
    objective: list[float]
    # Accepted fraction per step.
    step_scale: list[float]
    # Relative residual of the step's linear system.
    pcg_residual: list[float]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted effect of a filter; positive noise reductions are quieter.

    With several conditions, weighted means over them, and the largest of max_gain_db and control_rms.
    """

    # Source of the uncertainty: the calibration, the model's support listeners, or the ends of the responses.
    basis: Basis
    # Per band from 20 Hz to 20 kHz, float32 [31].
    band_reduction_db: Float32
    # The same with `predict.DOUBT` times what is unknown.
    least_reduction_db: Float32
    # Mean over the 21 bands from 50 Hz to 5 kHz.
    mean_noise_reduction_db: float
    # Half-width about the mean noise reduction that contains the true one nine times in ten.
    interval_db: float
    # Mean over the 23 bands from 50 Hz to 8 kHz of their increase in level, >= 0.
    amplification_db: float
    # The same over all 31 bands.
    wide_amplification_db: float
    # Change of level from 17.8 to 44.7 Hz and from 8.9 to 22.4 kHz; positive is louder.
    out_of_band_low_db: float
    out_of_band_high_db: float
    # Level of the reference noise from 20 Hz to 20 kHz.
    level_reduction_db: float
    a_weighted_level_reduction_db: float
    # Loss of mean noise reduction for an error of 1 dB or one sample in the secondary path, the worse of both
    # directions.
    gain_sensitivity_db: float
    delay_sensitivity_db: float
    # Mean noise reduction lost by the uncertainty of the measurement.
    uncertainty_cost_db: float
    # Largest |W|.
    max_gain_db: float
    # RMS of the loudspeaker signal w * x, in the unit of x.
    control_rms: float
    # Mean on the paths as they were sent, without anything unknown.
    nominal_noise_reduction_db: float
    # With a controller, per band, float32 [31]: the shares of filter and controller in `band_reduction_db`, and the
    # change of what the loudspeaker plays besides.
    feedforward_noise_reduction_db: Float32 | None = None
    feedback_noise_reduction_db: Float32 | None = None
    playback_change_db: Float32 | None = None
    # Bands that are unknown in a condition (UNKNOWN).
    unknown_bands: tuple[int, ...] = ()
    # Bands from 50 Hz to 5 kHz that the means count: those in which the system is not silent.
    counted_bands: tuple[int, ...] = NR_BANDS
    # Predictions per condition, if several.
    conditions: tuple[ConditionPrediction, ...] = ()

    @property
    def noise_reduction_db(self) -> Float32:
        """Return the bands from 50 Hz to 8 kHz, [23]."""
        return self.band_reduction_db[columns(AMP_BANDS)]

    def compared_db(self, n_updates: int) -> float:
        """Return the mean noise reduction by which filters for the same problem are compared.

        Updates minimise the expected error (`Known.assumed`); a start knows nothing of what is unknown.
        """
        is_expected = n_updates and self.basis != "response"
        return self.mean_noise_reduction_db if is_expected else self.nominal_noise_reduction_db

    @property
    def louder_bands(self) -> tuple[int, ...]:
        """Return the bands that become louder in a condition, or may."""
        predictions = [item.prediction for item in self.conditions] or [self]
        least_db = np.min([item.least_reduction_db for item in predictions], axis=0).tolist()
        return tuple(band for band, least in zip(WIDE_BANDS, least_db, strict=True) if least < -NOT_LOUDER_DB)


@dataclass(frozen=True, eq=False)
class ConditionPrediction:
    """Effect of a filter in one of several conditions."""

    label: str
    prediction: Prediction
    # Prediction of a filter designed on the other conditions, if requested.
    left_out: Prediction | None = None


@dataclass(frozen=True, eq=False)
class Design:
    """One control filter, its updates and its prediction."""

    # float32 [2048] for e = d - s * w * x.
    taps: Float32
    # `stopped` may also be `deadline`, if a deadline allowed fewer updates than requested.
    refinement: RefinementRecord
    # Prediction; with a feedback path, of the closed loop.
    prediction: Prediction
    # Milliseconds per stage (`conventions.STAGES`) of the whole batch; without stages that were not timed.
    times_ms: dict[str, float] = field(default_factory=dict)
    # Method of the filter; a Wiener filter's if it replaced the generator's.
    method: str = "prime"
    # Updates that were requested.
    n_requested: int = 0
    # Only with a feedback path or a controller.
    loop: Loop | None = None
    # Predicted noise reduction that the requested ceiling on |W| costs, compared with the default ceiling or with
    # WMMSE; None if the filter was below it anyway and WMMSE is not better.
    ceiling_cost_db: float | None = None
    # Reason why a Wiener filter replaced the generator's, if it did.
    replaced_because: Replaced | None = None
    # Faults of the paths compared with the model's support.
    implausible: tuple[Finding, ...] = ()
    # What is known of the conditions' paths.
    known: tuple[Known, ...] = ()


@dataclass(frozen=True)
class Fallback:
    """When a Wiener filter replaces the generator's, besides one that is not finite."""

    # Predicted noise reduction below which the generator's filter is compared; infinite: always.
    below_db: float = math.inf
    # Least advantage of a Wiener filter.
    margin_db: float = 0.25


class Filter(NamedTuple):
    """A filter after its updates, before margins and ceiling."""

    # float32 [2048].
    taps: Float32
    refinement: RefinementRecord
    # Milliseconds per stage of the batch.
    times_ms: dict[str, float]


class Backend(Protocol):
    """Starts and updates of one model on one kind of processor; all else is the core's (`Model.core`)."""

    # `reference`, `cpu` or `cuda`.
    name: str
    # Largest number of problems in one call.
    max_batch: int
    # Whether several threads may call at the same time.
    is_thread_safe: bool

    def __init__(self, parameters: ModelParameters) -> None: ...

    def filters(self, problems: Sequence[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        """Make first taps and updates, of one filter for all conditions of each problem.

        They keep the loose ceiling approximately. NonFiniteFilter replaces a filter, or a record, that is not finite.
        """
        ...


def backend_class(device: str) -> type[Backend]:
    """Return the backend class of a device.

    Parameters
    ----------
    device
        `cpu`, `cuda` or `reference` (torch in float32 on the CPU).

    Returns
    -------
    type[Backend]
        Class to be created with a model's numbers.

    Raises
    ------
    ValueError
        The device does not exist.
    """
    if device == "cpu":
        from prime_anc.core import Core

        return Core
    if device == "cuda":
        from prime_anc.method.backends.cuda import CudaBackend

        return CudaBackend
    if device == "reference":
        from prime_anc.method.backends.reference import ReferenceBackend

        return ReferenceBackend
    raise ValueError(f"device: {device!r} does not exist; use cpu, cuda or reference")


class Model:
    """A checkpoint's numbers on one kind of processor; as thread-safe as its backend."""

    def __init__(self, parameters: ModelParameters, backend: Backend) -> None:
        self.parameters = parameters
        self.backend = backend

    @classmethod
    def on(cls, device: str, parameters: ModelParameters) -> Model:
        """Load a model on `cpu`, `cuda` or `reference`; ValueError for another device."""
        return cls(parameters, backend_class(device)(parameters))

    @cached_property
    def core(self) -> Core:
        """Return the C core, which poses, limits and predicts for all backends."""
        from prime_anc.core import Core

        return self.backend if isinstance(self.backend, Core) else Core(self.parameters)
