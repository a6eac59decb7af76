"""The paper's results, each with its data set and conditions (Tables 1 to 3 and Section 4).

PANDAR in the paper: 23 persons, 7 in support, 16 held out, ten splits, three seeds. Times: an RTX 5090; direct
WMMSE on one thread of a Threadripper PRO 7975WX.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.report.designs import Design


@dataclass(frozen=True)
class Published:
    """One line of the paper. conditions: `all` is the mean over the four of PANDAR; ten-path has originals only."""

    dataset: str
    conditions: str
    design: Design
    noise_reduction_db: float
    noise_reduction_sd_db: float | None = None
    amplification_db: float | None = None
    control_rms: float | None = None
    core_ms: float | None = None


@dataclass(frozen=True)
class PublishedDifference:
    """NR of the first minus NR of the second, and in how many of the ten splits it is positive, where stated."""

    dataset: str
    conditions: str
    first: Design
    second: Design
    noise_reduction_db: float
    n_won: int | None = None


def _pandar(method: str, k: int, *figures: float | None) -> Published:
    return Published("pandar", "all", Design(method, k, "paper" if k else ""), *figures)  # type: ignore[arg-type]


def _original(method: str, noise_reduction_db: float) -> Published:
    return Published("pandar", "original", Design(method), noise_reduction_db)


def _ten_path(method: str, *figures: float) -> Published:
    return Published("ten-path", "original", Design(method), *figures)


PUBLISHED = (
    _pandar("prime_no_interpolation", 0, 16.22, 0.66),
    _pandar("prime", 0, 17.755, 0.30, 0.134, 0.302, 0.717),
    _pandar("ratio_base_full_band", 0, 10.09, 0.22),
    _pandar("projected_ratio", 0, 7.09, 0.28),
    _pandar("fomaml", 0, 9.35, 0.22),
    _pandar("wmmse_shared", 0, 8.81, 0.27),
    _pandar("e2e_cfg", 0, 9.75, 0.42),
    _pandar("skip_mp", 0, 18.577, None, 0.093),
    _pandar("skip_mp_phase", 0, 18.616, None, 0.093),
    _pandar("no_skip_mp", 0, 14.646, None, 0.093),
    _pandar("no_skip_mp_phase", 0, 14.655, None, 0.093),
    _pandar("prime_shuffled_phase", 0, 12.593, None, 0.289),
    _pandar("prime_path_independent", 0, 12.509, None, 0.205),
    _pandar("prime", 1, 20.869, None, 0.136, 0.303, 1.317),
    _pandar("prime", 2, 21.370, None, 0.149, 0.306, 1.772),
    _pandar("prime", 3, 21.430, None, 0.156, 0.307, 2.169),
    _pandar("ratio_base_full_band", 4, 19.286, None, 0.412, 0.310, 2.079),
    _pandar("wmmse", 0, 21.722, None, 0.351, 0.502, 4.623),
    _pandar("wmmse", 3, 23.264, None, 0.357, 0.506, 6.120),
    _pandar("iterative_fir", 0, 21.992, None, 0.165, 0.449, 12430.125),
    _pandar("fxlms", 0, 19.497, None, 0.125, 0.150),
    _pandar("fxnlms", 0, 19.833, None, 0.148, 0.152),
    _original("prime", 18.576),
    _original("ratio_base_full_band", 10.686),
    _original("prime_no_interpolation", 16.832),
    _ten_path("prime_no_interpolation", 16.72, 2.08),
    _ten_path("prime", 18.81, 2.57, 0.770),
    _ten_path("ratio_base_full_band", 15.95, 0.29),
    _ten_path("projected_ratio", 5.95, 0.63),
    _ten_path("fomaml", 9.43, 0.65),
    _ten_path("wmmse_shared", 7.07, 2.46),
    _ten_path("e2e_cfg", 5.55, 4.43),
)

_PRIME, _BASE = Design("prime"), Design("ratio_base_full_band")

PUBLISHED_DIFFERENCES = (
    PublishedDifference("pandar", "all", _PRIME, _BASE, 7.663, 10),
    PublishedDifference("pandar", "original", _PRIME, _BASE, 7.89, 10),
    PublishedDifference("pandar", "modified", _PRIME, _BASE, 7.588),
    PublishedDifference("pandar", "all", _PRIME, Design("prime_no_interpolation"), 1.539, 10),
    PublishedDifference("pandar", "all", Design("skip_mp"), Design("no_skip_mp"), 3.93, 10),
    PublishedDifference("pandar", "all", Design("skip_mp_phase"), Design("no_skip_mp_phase"), 3.96, 10),
    PublishedDifference("pandar", "all", _PRIME, Design("prime_shuffled_phase"), 5.162),
    PublishedDifference("pandar", "all", _PRIME, Design("prime_path_independent"), 5.246),
    PublishedDifference(
        "pandar", "all", Design("prime", 3, "paper"), Design("ratio_base_full_band", 4, "paper"), 2.14
    ),
    PublishedDifference("ten-path", "original", _PRIME, _BASE, 2.857, 9),
    PublishedDifference("ten-path", "original", _PRIME, Design("prime_no_interpolation"), 2.083, 10),
)


def compared_dataset(dataset: str) -> str:
    """The paper's data set to compare with; simulated listeners are modelled on PANDAR."""
    return "pandar" if dataset == "simulated" else dataset


def published(dataset: str, conditions: str) -> dict[Design, Published]:
    """The paper's lines for a data set and conditions, by design."""
    name = compared_dataset(dataset)
    return {each.design: each for each in PUBLISHED if (each.dataset, each.conditions) == (name, conditions)}


def published_difference(
    dataset: str, conditions: str, first: Design, second: Design
) -> PublishedDifference | None:
    """The paper's figure for a pair, if it gives one for that data set and conditions."""
    wanted = (compared_dataset(dataset), conditions, first, second)
    for each in PUBLISHED_DIFFERENCES:
        if (each.dataset, each.conditions, each.first, each.second) == wanted:
            return each
    return None
