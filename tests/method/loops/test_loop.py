"""Stability and margins of the loop, against a simulation of it in time."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.signal import lfilter

from prime_anc.method.conventions import N_TAPS
from prime_anc.method.design import design
from prime_anc.method.errors import interruptible
from prime_anc.method.loops.loop import is_stable, judge_loop, loop_gain, with_margins, worst_loop
from prime_anc.method.posing import pose
from prime_anc.method.types import DesignOptions, Model, Problem
from tests.service import models

MODEL = Model.on("cpu", models.checkpoint(1).parameters)

# Taps, and the best ones below a ceiling.
Designed = tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]


def feedback_path(level: float) -> np.ndarray:
    """A short resonant path with a delay of three samples."""
    k = np.arange(64)
    return np.concatenate((np.zeros(3), level * np.exp(-k / 9) * np.cos(k / 3))).astype(np.float32)


def control_filter(seed: int) -> np.ndarray:
    taps = np.zeros(N_TAPS, np.float32)
    taps[:80] = np.random.default_rng(seed).standard_normal(80) * np.exp(-np.arange(80) / 12)
    return taps


def simulated(taps: np.ndarray, feedback: np.ndarray, n_samples: int = 12_000) -> np.ndarray:
    """m = x - f * w * m for an impulse x, sample by sample, in float64."""
    loop = np.convolve(taps.astype(float), feedback.astype(float))
    assert loop[0] == 0  # or there would be a loop without delay
    loop[0] = 1
    return lfilter([1.0], loop[: np.flatnonzero(loop)[-1] + 1], np.eye(1, n_samples)[0])


@pytest.mark.parametrize("seed", range(3))
def test_stability_is_what_simulation_shows(seed: int) -> None:
    taps, feedback = control_filter(seed), feedback_path(0.1)
    margin_db = judge_loop(loop_gain(taps, feedback)).gain_margin_db
    for beyond_db, stable in ((-3, True), (-0.5, True), (0.5, False), (3, False)):
        louder = feedback * np.float32(10 ** ((margin_db + beyond_db) / 20))
        judged = judge_loop(loop_gain(taps, louder))
        found = simulated(taps, louder)
        grows = np.abs(found[-2000:]).max() > np.abs(found[:2000]).max()
        assert judged.stable is stable
        assert grows is not stable
        assert judged.gain_margin_db == pytest.approx(-beyond_db, abs=0.02)


@pytest.mark.parametrize("sign", [1, -1])
def test_instability_at_ends_is_found(sign: int) -> None:
    """One real pole beyond the unit circle, near z = sign, turns 1 + L by pi, not by 2 pi."""
    feedback = -np.pad((0.7 * sign) ** np.arange(64), (1, 0)).astype(np.float32)
    for gain, stable in ((0.98, True), (1.02, False)):
        taps = np.zeros(N_TAPS, np.float32)
        taps[0] = sign * gain / np.abs(feedback).sum()  # L = -gain at z = sign
        assert judge_loop(loop_gain(taps, feedback)).stable is stable
        grows = np.abs(simulated(taps, feedback, 3000)[-500:]).max() > 1
        assert grows is not stable


@pytest.fixture(scope="module")
def designed() -> Designed:
    """An ear's filter, and the best one below a ceiling."""
    problem, model = Problem((models.ear(1),)), Model.on("cpu", models.checkpoint(1).parameters)
    taps = design(problem, DesignOptions("prime", 1), model).taps
    return taps, partial(model.core.limit, pose(problem, model).open_loop, taps)


@pytest.mark.parametrize(("gain_db", "phase_deg"), [(6, 30), (12, 60)])
def test_margins_are_kept_at_least_cost(designed: Designed, gain_db: float, phase_deg: float) -> None:
    (taps, best_below), feedback = designed, feedback_path(0.1)
    margin_db = judge_loop(loop_gain(taps, feedback)).gain_margin_db
    loud = feedback * np.float32(10 ** ((margin_db + 4) / 20))
    quiet = loud * np.float32(0.01)
    kept = with_margins(taps, [quiet, loud], gain_db, phase_deg, best_below)
    found = judge_loop(loop_gain(kept, loud))
    assert found.stable
    assert found.gain_margin_db >= gain_db
    assert found.phase_margin_deg >= phase_deg
    assert min(found.gain_margin_db - gain_db, (found.phase_margin_deg - phase_deg) / 10) < 2.5
    assert with_margins(taps, [quiet], gain_db, phase_deg, best_below) is taps


PERIODS = {"constant": 1, "nyquist": 2, "comb": 16}
HOSTILE = {
    **{name: np.cos(2 * np.pi * np.arange(2048) / n).round() for name, n in PERIODS.items()},
    "tone": np.cos(0.3 * np.arange(2048)),
    "loud": np.full(32_768, 1e3),
    "noise": np.random.default_rng(5).standard_normal(8192),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_feedback_takes_few_rounds(designed: Designed, name: str) -> None:
    """Paths with gaps between their peaks, where no filter of this length has the response that was asked for."""
    n_rounds = 0

    def count() -> None:
        nonlocal n_rounds
        n_rounds += 1

    (taps, best_below), feedback = designed, HOSTILE[name].astype(np.float32)
    with interruptible(count):
        kept = with_margins(taps, [feedback, -feedback], 6, 30, best_below)
    found = worst_loop([judge_loop(loop_gain(kept, item)) for item in (feedback, -feedback)])
    assert found.stable
    assert found.gain_margin_db >= 6
    assert found.phase_margin_deg >= 30
    assert np.abs(kept).max() > 0
    assert n_rounds <= 20


def test_what_is_not_number_is_not_stable() -> None:
    assert not is_stable(np.array([0.1, np.nan, 0.1]) + 0j)
    assert not is_stable(np.array([0.1, -1.0, 0.1]) + 0j)
    silent = judge_loop(np.zeros(9, complex))
    assert silent.stable
    assert (silent.gain_margin_db, silent.phase_margin_deg) == (120, 180)


def test_loop_that_turns_back_is_stable() -> None:
    """It crosses the real axis below -1 both ways; one that goes on goes around -1."""
    there = np.linspace(0, 1.2 * np.pi, 50)
    assert is_stable(2 * np.exp(1j * np.r_[there, there[::-1]]))
    assert not is_stable(2 * np.exp(1j * np.linspace(0, 2 * np.pi, 100)))
