"""Measured ears are plausible to the bundled model, and every mistake is found and named."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.support.findings import find_implausible
from tests.oracles import measured
from training.datasets.mistakes import REQUEST_MISTAKES, later

Array = np.ndarray
Case = tuple[SupportPrior, tuple[Array, Array], tuple[Array, Array]]


@pytest.fixture(scope="module")
def cases(ears: list[measured.MeasuredEar]) -> list[Case]:
    """Every ear's estimates in float32, the bundled model's statistics, and another person's ear."""
    prior = ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters.support
    single = [
        (ear.estimated_primary.astype(np.float32), ear.estimated_secondary.astype(np.float32)) for ear in ears
    ]
    return [(prior, ear, single[(number + 2) % len(ears)]) for number, ear in enumerate(single)]


def found_in(case: Case, change: Callable[..., tuple[Array, Array]]) -> list[str]:
    prior, ear, other = case
    return [item.code for item in find_implausible(prior, *change(ear, other))]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("right", None),
        ("both times -1e-3", None),
        ("secondary inverted", "implausible_polarity"),
        ("primary inverted", "implausible_polarity"),
        ("secondary also as primary", "identical_paths"),
        ("primary also as secondary", "identical_paths"),
        ("secondary 20 dB too quiet", "implausible_level"),
        ("primary 200 dB too quiet", "implausible_level"),
        ("paths swapped", "swapped_paths"),
        ("first-order leak, 200 Hz", "implausible_leak"),
        ("second-order leak, 300 Hz", "implausible_leak"),
        ("1 sample late", "implausible_delay"),
        ("4 samples late", "implausible_delay"),
        ("primary 16 samples late", "implausible_delay"),
    ],
)
def test_each_mistake_and_nothing_else_is_named(cases: list[Case], name: str, code: str | None) -> None:
    for case in cases:
        assert found_in(case, REQUEST_MISTAKES[name]) == [code] * (code is not None), name


def test_another_sample_rate_is_named(cases: list[Case]) -> None:
    found = [found_in(case, REQUEST_MISTAKES["44.1 kHz as 48 kHz"]) for case in cases]
    assert sum(item == ["implausible_sample_rate"] for item in found) >= 5


def test_delays_of_both_paths_are_found(cases: list[Case]) -> None:
    for prior, (primary, secondary), _ in cases[::3]:
        found = prior.explain(later(primary, 20), secondary)
        assert found.primary_delay_samples == pytest.approx(20, abs=7)
        assert abs(found.delay_samples) < 0.3
        found = prior.explain(primary, later(np.pad(secondary, (0, 2048)), 500))
        assert found.delay_samples == pytest.approx(500, abs=0.5)
        (finding,) = find_implausible(prior, later(primary, 20), later(secondary, 20))  # e recorded late
        assert re.search("secondary path is (19.9|20.[01]) samples later", finding.detail)
        assert "primary path is " in finding.detail


def test_reversed_sign_is_named_beside_another_mistake(cases: list[Case]) -> None:
    for case in cases[::3]:
        codes = found_in(case, lambda ear, other: (ear[0], -later(ear[1], 2)))
        assert codes == ["implausible_polarity", "implausible_delay"]


@pytest.mark.parametrize(
    "paths",
    [
        (np.ones(1, np.float32), np.ones(1, np.float32)),
        (np.pad([1e-38], (30_000, 0)).astype(np.float32), np.ones(3, np.float32)),
        (np.full(32_768, 3e38, np.float32), np.full(10, -3e38, np.float32)),
        (np.eye(1, 16_385, 16_384)[0].astype(np.complex64), np.eye(1, 16_385)[0].astype(np.complex64)),
    ],
    ids=["one sample", "late and faint", "largest numbers", "one bin"],
)
def test_extreme_paths_are_judged_without_warning(cases: list[Case], paths: tuple[Array, Array]) -> None:
    assert find_implausible(cases[0][0], *paths)


@pytest.mark.parametrize(("off_db", "is_named"), [(-4.5, True), (-2.5, False), (2.5, False), (4.5, True)])
def test_gain_off_by_more_than_ears_differ_is_named(cases: list[Case], off_db: float, is_named: bool) -> None:
    for prior, (primary, secondary), _ in cases:
        to_support_db = -prior.explain(primary, secondary).level_db
        moved = np.float32(10 ** ((to_support_db + off_db) / 20)) * secondary
        codes = [finding.code for finding in find_implausible(prior, primary, moved)]
        assert codes == ["implausible_level"] * is_named
