"""A design, that is, a method after k updates with a profile: its name and its place in tables."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import NamedTuple, cast

import pandas as pd

METHODS = (
    "ratio_base_full_band",
    "ratio_base_held_band",
    "fir_wiener",
    "projected_ratio",
    "wmmse_shared",
    "fir_2048_shared",
    "sections_6_shared",
    "fomaml",
    "selective",
    "generative",
    "e2e_cfg",
    "prime_no_interpolation",
    "prime",
    "skip_mp",
    "skip_mp_phase",
    "no_skip_mp",
    "no_skip_mp_phase",
    "prime_shuffled_phase",
    "prime_path_independent",
    "prime-log_no_interpolation",
    "prime-log_minimum_phase",
    "prime-log",
    "wmmse",
    *(f"wmmse_pcg_{2**n}" for n in range(5, 12)),
    "wmmse_fast",
    "fir_2048",
    "sections_6",
    "iterative_fir",
    "fxlms",
    "fxnlms",
    "weighted_fxlms",
)
"""Order in tables and legends; other methods follow, sorted by name."""

ADAPTIVE = frozenset({"fxlms", "fxnlms", "weighted_fxlms"})
"""Methods that adapt on the query's true paths."""

_NAME = re.compile(r"(?P<method>.+?)(?: \+ GN\((?P<k>\d+)(?:, (?P<profile>\w+))?\))?")


class Design(NamedTuple):
    """Method, number of Gauss-Newton updates and their profile; the profile is empty at k = 0."""

    method: str
    k: int = 0
    profile: str = ""


def own_profile(method: str) -> str:
    """The profile of a method's updates if the name does not state one: `fast` for prime-log, else `paper`."""
    return "fast" if method.startswith("prime-log") else "paper"


def design_name(method: str, k: int, profile: str = "") -> str:
    """`prime-log + GN(2)`; a profile other than the method's own is named: `prime-log + GN(2, paper)`."""
    if not k:
        return method
    named = "" if profile in ("", own_profile(method)) else f", {profile}"
    return f"{method} + GN({k}{named})"


def design_named(name: str) -> Design:
    """The inverse of `design_name`."""
    found = cast("re.Match[str]", _NAME.fullmatch(name))
    method, k = found["method"], int(found["k"] or 0)
    return Design(method, k, (found["profile"] or own_profile(method)) if k else "")


def as_design(key: Hashable) -> Design:
    """The design from the first three levels of a table's index."""
    return Design(*cast("tuple[str, int, str]", key)[:3])


def in_order(designs: Iterable[Design]) -> list[Design]:
    """Sorted in the order of `METHODS`, then by profile and updates."""

    def place(design: Design) -> tuple[int, str, str, int]:
        known = METHODS.index(design.method) if design.method in METHODS else len(METHODS)
        return known, design.method, design.profile, design.k

    return sorted(designs, key=place)


def by_design(rows: pd.DataFrame) -> dict[Design, pd.DataFrame]:
    """The rows of each design present, in order."""
    found = {as_design(key): own for key, own in rows.groupby(["method", "k", "profile"], sort=False)}
    return {design: found[design] for design in in_order(found)}


def on_true_paths(design: Design, own: pd.DataFrame) -> bool:
    """Whether a design used the query's true paths, according to its rows or its method."""
    return design.method in ADAPTIVE or bool((own.paths == "true").any())


def marked_name(design: Design, own: pd.DataFrame) -> str:
    """The design's name, marked if it used the query's true paths."""
    return design_name(*design) + (" (true paths)" if on_true_paths(design, own) else "")
