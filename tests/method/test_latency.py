"""Latency goes into the paths of the chain; one power of two scales all paths, and absurd pairs are refused."""

from dataclasses import replace

import numpy as np
import pytest

from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.posing import MAX_LEVEL_DIFFERENCE_DB, Posed, level_db, pose, with_latency
from prime_anc.method.types import Model, Paths, Problem
from tests.model_store import cases
from tests.problems import one


def ear(seed: int = 1) -> Paths:
    return Paths(*cases.ear(seed))


def test_latency_delays_paths_of_loudspeaker() -> None:
    plain = ear()
    later = Paths(plain.primary, 2 * plain.secondary, feedback=plain.secondary[:40], label="loose")
    found = with_latency(Problem((plain, later), latency_samples=5.3))
    assert found.latency_samples == 0
    assert found.conditions[1].label == "loose"
    turn = np.exp(-2j * np.pi * 5.3 * np.arange(N_BINS) / DESIGN_N_FFT)
    for before, after in zip((plain, later), found.conditions, strict=True):
        assert after.primary is before.primary
        for name in ("secondary", "feedback"):
            if (path := getattr(before, name)) is not None:
                delayed = np.fft.rfft(path, DESIGN_N_FFT) * turn
                np.testing.assert_allclose(getattr(after, name), delayed, atol=1e-6 * np.abs(delayed).max())


RNG = np.random.default_rng(1)
PRIMARY = (RNG.standard_normal(300) * np.exp(-np.arange(300) / 40)).astype(np.float32)
SECONDARY = (0.2 * RNG.standard_normal(100) * np.exp(-np.arange(100) / 20)).astype(np.float32)


def ear_of(factor: float = 1.0, primary_factor: float = 1.0) -> Problem:
    return one(
        (PRIMARY * np.float64(factor * primary_factor)).astype(np.float32),
        (SECONDARY * np.float64(factor)).astype(np.float32),
    )


MODEL = Model.on("cpu", cases.parameters(1))


def posed(problem: Problem) -> Posed:
    return pose(problem, MODEL)


@pytest.mark.parametrize("factor", [1e-30, 0.3, 1e30])
def test_unit_level_removes_any_factor(factor: float) -> None:
    """But for a last power of two, where a factor is none: 1.5 dB of slack at its edges."""
    found, same = posed(ear_of(factor)), posed(ear_of())
    mean_db = (level_db(found.primary[0]) + level_db(found.secondary[0])) / 2
    assert abs(mean_db) < 3.02
    ratio = np.abs(found.primary).max() / np.abs(same.primary).max()
    for scaled, expected in ((found.primary, same.primary), (found.secondary, same.secondary)):
        np.testing.assert_allclose(scaled, ratio * expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_unit_level_scales_conditions_alike() -> None:
    spectra = [
        np.fft.rfft(item, 32_768).astype(np.complex64) * np.complex64(1e-20) for item in (PRIMARY, SECONDARY)
    ]
    other = Paths(spectra[0] * np.complex64(2), spectra[1], weight=3.0, label="pressed")
    found = posed(Problem((Paths(*spectra), other)))
    np.testing.assert_array_equal(found.primary[1], 2 * found.primary[0])
    np.testing.assert_array_equal(found.open_loop.shares, [0.25, 0.75])


@pytest.mark.parametrize(("factor", "word"), [(1e-10, "below"), (1e18, "above")])
def test_unit_level_refuses_unequal_levels(factor: float, word: str) -> None:
    with pytest.raises(InvalidPaths, match=f"dB {word} that of the secondary path") as caught:
        posed(ear_of(primary_factor=factor))
    assert caught.value.field == "primary"
    two = Problem(ear_of().conditions + ear_of(1 / factor, factor).conditions)
    with pytest.raises(InvalidPaths, match=r"conditions\.1.* that of the primary path") as caught:
        posed(two)
    assert caught.value.field == "conditions.1.secondary"


def test_unit_level_refuses_absurd_feedback_alone() -> None:
    posed(ear_of(primary_factor=10 ** ((MAX_LEVEL_DIFFERENCE_DB - 20) / 20)))
    (usual,) = ear_of().conditions
    for factor in (1e-30, 100.0):
        posed(Problem((replace(usual, feedback=np.float32(factor) * usual.secondary),)))
    loud = np.float32(1e18) * usual.secondary
    with pytest.raises(InvalidPaths, match="feedback: its level is") as caught:
        posed(Problem((usual, replace(usual, feedback=loud))))
    assert caught.value.field == "conditions.1.feedback"
