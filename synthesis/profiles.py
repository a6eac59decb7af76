"""How Gauss-Newton updates are made: the profiles, and the constants that every backend shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from synthesis.bands import AMP_BANDS, WIDE_BANDS
from synthesis.conventions import DESIGN_N_FFT

# Backtracking trials: the i-th is 0.5**i.
STEP_SCALES = (1.0, 0.5, 0.25)
SUFFICIENT_DECREASE = 1e-5
DAMPING_FLOOR = 1e-6
# Limits of the ceiling on |W| that keep the penalty finite in a band without disturbance or secondary path.
LEAST_CEILING, MOST_CEILING = 0.01, 1e6
MAX_UPDATES = 8
# Band power over the total below which a band counts as silent, so that ln(E / D) stays finite.
SILENCE = 1e-12

# Share of the penalty's curvature that holds steps back in bins below their ceiling. Without it steps of a weakly
# damped system break through ceilings that they do not see, which ends the updates 5 to 15 dB early.
GUARD = 0.1
PLANE_ITERATIONS = 2

# Decrease of J (4 dB) in one round above which it is far from its minimum; measured ears reach at most 0.9.
LARGE_DECREASE = 1.0
# Relative residual above which conjugate gradients have failed; J then counts as far, too.
MOST_RESIDUAL = 0.8
# Updates after which J counts as far: a request for more is one for the minimum.
FIRST_UPDATES = 3
# Rounds of direct solves in an update far from the minimum, and the decrease of J that continues them.
N_ROUNDS, SMALL_DECREASE = 4, 0.02
# Damping relative to the normal matrix' diagonal in direct solves (float64).
DIRECT_DAMPING = 1e-9

# Weight of ln(E / D) of an unknown band that becomes louder.
UNKNOWN_WEIGHT = 1.0
# Largest ln(E / D) of such a band that needs no further update: 0.4 dB.
LOUDEST_UNKNOWN = 0.1


Preconditioner = Literal["diagonal", "gohberg_semencul", "exact"]
PRECONDITIONERS: tuple[Preconditioner, ...] = get_args(Preconditioner)


@dataclass(frozen=True)
class RefinementProfile:
    """How the updates are made.

    n_fft: points of the grid that J is evaluated on, at most that of the paths. risk_bands: bands of the worst-band
    risk; risk_weight: rho. damping: over the normal matrix' diagonal. preconditioner: of the conjugate gradients.
    `diagonal` is a scalar for a Toeplitz matrix, and a scalar leaves every iterate unchanged, so it is applied as
    none; `exact` is a direct solve in their place. n_iterations: of the conjugate gradients. step_cap: largest RMS
    of a response step over the RMS of the ratio base, both over the 23 bands; None: no cap. ceiling_weight: of the
    penalty on |W| above the ceiling, which is the requested one or, above the scored bands, what keeps the
    loudspeaker below the disturbance. finer: name of the profile that replaces this one for responses of more than
    n_fft / 2 samples. settles: whether updates end in the plane of their last two steps, and go on by direct solves
    where they are far from the minimum. band_weights: of the 31 bands in J's mean, from a problem's option
    (`BandWeights.relative`); None: all alike.
    """

    name: str
    n_fft: int
    risk_bands: tuple[int, ...]
    risk_weight: float
    damping: float
    preconditioner: Preconditioner
    n_iterations: int
    step_cap: float | None
    ceiling_weight: float
    tolerance: float = 1e-6
    finer: str | None = None
    settles: bool = False
    band_weights: tuple[float, ...] | None = None


PAPER = RefinementProfile(
    "paper",
    DESIGN_N_FFT,
    AMP_BANDS,
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
    "fast",
    8192,
    WIDE_BANDS,
    risk_weight=0.4,
    damping=1e-3,
    preconditioner="gohberg_semencul",
    n_iterations=4,
    step_cap=None,
    ceiling_weight=30.0,
    finer="fine",
    settles=True,
)
# FAST for paths finer than the resolution of 8192 points, whose residual varies between two of those. On 32,768 points
# no filter was better (windows of 16,384 and 32,768, whole responses or cut, and true paths: within 0.03 dB of noise
# reduction).
FINE = replace(FAST, name="fine", n_fft=16_384, finer=None)
PROFILES = {item.name: item for item in (PAPER, FAST, FINE)}


def on_design_grid(profile: RefinementProfile) -> RefinementProfile:
    """The same profile on the finest grid, which alone resolves the lowest bands: for paths with unknown bands,
    which no coarser grid would show to become louder."""
    return replace(profile, n_fft=DESIGN_N_FFT)


def settling(profile: RefinementProfile) -> RefinementProfile:
    """The same profile where J is far from its minimum: systems that are hardly damped and solved directly, on the
    finest grid, between whose points no response hides."""
    return replace(on_design_grid(profile), damping=DIRECT_DAMPING, preconditioner="exact")


def profile_for_resolution(name: str, n_samples: int) -> str:
    """`fine` instead of `fast` where the paths are finer than that profile's grid, any other profile as it is.

    n_samples: twice the longer response or, of a spectrum, the points of its grid: a residual's power between its
    bins takes that many. On 8192 points the updates of measured responses of 8192 samples lose 1.5 dB. Of a path
    that is known to come from windows, which smooth it, the window.
    """
    profile = PROFILES[name]
    return profile.finer if profile.finer and n_samples > profile.n_fft else name


# Why an item stopped, as stored per item; VERDICTS names them.
BUDGET, CONVERGED, NO_DECREASE = 0, 1, 2
VERDICTS = ("budget", "converged", "no_decrease")
