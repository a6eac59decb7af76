"""Designs and predictions for field cases and for systems that are not earphones."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import wavfile
from scipy.signal import firwin

from model_store.store import ModelStore
from prime_anc.method.bands import WIDE_BANDS, band_membership
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.posing import pose
from prime_anc.method.types import DesignOptions, Fallback, Model, Paths, Problem
from prime_anc.tasks.problem import resolved_profile
from service.models.resident_model import ResidentModel
from tests.cases.conftest import Command, designed, reached_db

Array = NDArray[np.float64]

MEMBERSHIP = band_membership(WIDE_BANDS, DESIGN_N_FFT)


@pytest.fixture(scope="module")
def model() -> ResidentModel:
    store, name = ModelStore(), "bose-qc20"
    return ResidentModel(store.resolve(name), store.load(name), "cpu", Fallback())


def responses(case: str, names: tuple[str, str]) -> list[Array]:
    if names[0].endswith(".wav"):
        return [wavfile.read(name)[1].astype(float) for name in names]
    return [np.loadtxt(name) for name in names]


@pytest.mark.parametrize(("case", "k"), [("01", 1), ("42", 3)])
@pytest.mark.filterwarnings("ignore:Chunk")
def test_band_limited_paths_are_predicted(
    case: str, k: int, in_case: Callable[[str], Command], score: ModuleType
) -> None:
    run = in_case(case)
    names = ("P.wav", "S.wav") if case == "42" else ("P.csv", "S.csv")
    rate = () if case == "42" else ("--rate", 48_000)
    design = designed(run, "--primary", names[0], "--secondary", names[1], "-k", k, *rate)
    reached = reached_db(score.Truth(*responses(case, names), 48_000), design)
    prediction = design["prediction"]
    assert abs(reached.mean() - prediction["mean_noise_reduction_db"]) < prediction["interval_db"]
    assert reached.mean() > 19
    predicted = np.array(prediction["noise_reduction_db"])[: len(reached)]
    assert (reached > np.minimum(predicted, 0) - 1).all()
    if case == "42":
        assert (-reached).max() < 1
    # The cup is silent from 6.3 kHz on.
    assert prediction["unknown_bands_hz"] == ([] if case == "01" else [6300, 8000, 10_000, 12_500, 16_000, 20_000])


def test_wiener_filter_replaces_worse_one(in_case: Callable[[str], Command], score: ModuleType) -> None:
    run, reached = in_case("04"), []
    for options in (("-k", 1), ("-k", 0, "--method", "wmmse")):
        paths = ("--primary", "P.csv", "--secondary", "S.csv", "--rate", 48_000)
        truth = score.Truth(*responses("04", ("P.csv", "S.csv")), 48_000)
        reached.append(reached_db(truth, designed(run, *paths, *options)).mean())
    assert reached[0] > reached[1] - 0.5


RNG = np.random.default_rng(11)
BAND_PASSES = [
    [firwin(length, edges, pass_zero=False, fs=48_000) for length in (n, 32)]
    for n, edges in zip((256, 64), RNG.uniform((40, 1500), (300, 8000), (2, 2)), strict=True)
]


def reduction_db(ear: Problem, taps: NDArray[np.floating], psd: Array) -> Array:
    """Noise reduction per band of the 31, in float64."""
    (paths,) = ear.conditions
    p, s = (np.fft.rfft(item.astype(float), DESIGN_N_FFT) for item in (paths.primary, paths.secondary))
    left = p - s * np.fft.rfft(taps.astype(float), DESIGN_N_FFT)
    before, after = ((psd * np.abs(item) ** 2) @ MEMBERSHIP for item in (p, left))
    return 10 * np.log10(before / after)


@pytest.mark.parametrize(
    ("by", "unknown_hz", "k"),
    [
        ("coherence", (0, 120), 0),
        ("coherence", (600, 1500), 3),
        ("coherence", (0, 24_001), 3),
        ("uncertainty", (4000, 24_000), 0),
        ("uncertainty", (4000, 24_000), 3),
    ],
)
@pytest.mark.parametrize(("primary", "secondary"), BAND_PASSES, ids=["256", "64"])
def test_unknown_bands_are_named_if_louder(
    primary: Array, secondary: Array, by: str, unknown_hz: tuple[float, float], k: int, model: ResidentModel
) -> None:
    hz = np.arange(N_BINS) * 48_000 / DESIGN_N_FFT
    is_known = ~((hz >= unknown_hz[0]) & (hz < unknown_hz[1]))
    unknown = (~is_known).astype(float) @ MEMBERSHIP > 0.98 * MEMBERSHIP.sum(0)
    known: dict[str, Any] = {"coherence": np.where(is_known, 0.999, 0).astype(np.float32)}
    if by == "uncertainty":
        known = {by: np.where(unknown, 30, 1e-4).astype(np.float32) * np.ones((2, 1), np.float32)}
    ear = Problem((Paths(primary.astype(np.float32), secondary.astype(np.float32), **known),))
    profile = resolved_profile("fast", (primary, secondary))
    (answer,) = model.design([ear], DesignOptions("prime", k, profile))
    named = np.isin(WIDE_BANDS, answer.prediction.unknown_bands)
    silent = pose(ear, Model.on("cpu", model.parameters)).known[0].silent
    silent = unknown & False if silent is None else silent
    assert named[unknown | silent].all()
    is_whole = is_known.astype(float) @ MEMBERSHIP == MEMBERSHIP.sum(0)
    assert not named[is_whole & ~silent].any()
    louder = reduction_db(ear, answer.taps, model.parameters.reference_psd.astype(float)) < -1
    assert not (louder & ~np.isin(WIDE_BANDS, answer.prediction.louder_bands)).any()
