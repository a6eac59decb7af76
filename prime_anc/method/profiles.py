"""Profiles of the Gauss-Newton updates, and the constants that all backends share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from prime_anc.method.bands import AMP_BANDS, WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.updates.objective import ObjectiveProfile

# Fractions of a step that are tried in turn.
STEP_SCALES = (1.0, 0.5, 0.25)
SUFFICIENT_DECREASE = 1e-5
DAMPING_FLOOR = 1e-6
# Range of the ceiling that keeps the penalty finite in a band without disturbance or secondary path.
LEAST_CEILING, MOST_CEILING = 0.01, 1e6
MAX_UPDATES = 8
# Added to all band powers over the total, so that ln(E / D) stays finite.
SILENCE = 1e-12

# Share of the penalty's curvature in bins below their ceiling. Without it, steps of a weakly damped system exceed
# ceilings that they do not see, and updates end 5 to 15 dB early.
GUARD = 0.1

# Decrease of J (4 dB) in one round above which it is far from its minimum. Of measured ears none
# exceeds it, unless a coherence, of which the start knows nothing, is sent with the paths.
LARGE_DECREASE = 1.0
# A decrease (0.6 dB) of more than that share of the one before: hardly damped systems fall as slowly from update to
# update; of 30 measured ears none.
SLOW_DECREASE, SLOW_SHARE = 0.15, 0.75
# Relative residual above which conjugate gradients have failed, and J also counts as far from its minimum.
MOST_RESIDUAL = 0.8
# Updates after which J counts as far from its minimum, because a request for more asks for the minimum.
FIRST_UPDATES = 3
# Steps by direct solution in an update far from the minimum, and the decrease of J that continues them.
N_ROUNDS, SMALL_DECREASE = 4, 0.02
# Damping over the diagonal of the normal matrix in direct solutions (float64).
DIRECT_DAMPING = 1e-9


Preconditioner = Literal["diagonal", "gohberg_semencul", "exact"]
PRECONDITIONERS: tuple[Preconditioner, ...] = get_args(Preconditioner)


@dataclass(frozen=True, kw_only=True)
class RefinementProfile(ObjectiveProfile):
    """Settings of the updates: theory (13) to (17)."""

    name: str
    # Points of the grid on which J is evaluated, at most that of the paths.
    n_fft: int
    # Damping over the diagonal of the normal matrix, lambda.
    damping: float
    # Preconditioner of the conjugate gradients. `diagonal` is applied as none: a Toeplitz matrix has a constant
    # diagonal, which changes no iterate. `exact`: a direct solution instead of conjugate gradients.
    preconditioner: Preconditioner
    # Conjugate gradient iterations per step.
    n_iterations: int
    # Largest RMS of a step's response over that of the path ratio, both over the 23 bands; None: unlimited.
    step_cap: float | None
    # Weight of the penalty on |W| above the ceiling: the requested one or, above 8.9 kHz, the one that keeps the
    # loudspeaker below the disturbance.
    ceiling_weight: float
    # Relative residual at which the conjugate gradients end.
    tolerance: float = 1e-6
    # Profile that replaces this one for responses of more than n_fft / 2 samples.
    finer: str | None = None
    # Whether direct solutions continue far from the minimum.
    settles: bool = False


PAPER = RefinementProfile(
    name="paper",
    n_fft=DESIGN_N_FFT,
    risk_bands=AMP_BANDS,
    risk_weight=0.05,
    damping=2e-3,
    preconditioner="diagonal",
    n_iterations=16,
    step_cap=10 ** (1 / 20) - 1,
    ceiling_weight=0.0,
)
# Eight times the paper's risk weight. From trained starts of two splits (16 held-out ears each), NR / AMP after one
# and three updates: 23.11 / 0.013 and 23.15 / 0.021 dB at 0.2, 23.08 / 0.005 and 23.13 / 0.006 at 0.5, 23.05 /
# 0.001 and 23.12 / 0.001 at 0.8. Half of the paper's damping, at 0.4: 23.12 / 0.007 and 23.17 / 0.010 instead of
# 23.09 / 0.007 and 23.14 / 0.009; a quarter gains as much again and costs float32 a digit. Six iterations instead
# of four: + 0.01 dB.
FAST = RefinementProfile(
    name="fast",
    n_fft=8192,
    risk_bands=WIDE_BANDS,
    risk_weight=0.4,
    damping=1e-3,
    preconditioner="gohberg_semencul",
    n_iterations=4,
    step_cap=None,
    ceiling_weight=30.0,
    finer="fine",
    settles=True,
)
# FAST for paths that 8192 points do not resolve. On 32768 points no filter was better by more than 0.03 dB (windows of
# 16384 and 32768, whole and cut responses, true paths).
FINE = replace(FAST, name="fine", n_fft=16_384, finer=None)
PROFILES = {item.name: item for item in (PAPER, FAST, FINE)}


def settling(profile: RefinementProfile) -> RefinementProfile:
    """Return the profile far from the minimum of J: direct solutions with little damping, on the finest grid."""
    return replace(profile, n_fft=DESIGN_N_FFT, damping=DIRECT_DAMPING, preconditioner="exact")


# Why the updates of an item stopped: indices of STOP_REASONS.
BUDGET, CONVERGED, NO_DECREASE = 0, 1, 2
STOP_REASONS = ("budget", "converged", "no_decrease")


def shows_far(decrease: Any, previous: Any) -> Any:
    """Judge by an update's decrease of J, and the one before (NaN: none), whether J is far from its minimum."""
    return (decrease > LARGE_DECREASE) | ((decrease > SLOW_DECREASE) & (decrease > SLOW_SHARE * previous))
