"""The Wiener fallback: it replaces what fails, lets pass what works, and hides no damaged model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model_store.errors import GoldenMismatch
from model_store.store import BUNDLED_ROOT, ModelStore
from service.engine.resident_model import ResidentModel
from service.engine.types import DesignAnswer
from service.engine.wiener_fallback import LOUDER_COSTS_DB, WienerFallback, merit_db
from synthesis.errors import InvalidPaths, NonFiniteFilter, SynthesisError
from synthesis.types import Design, DesignOptions, Paths, Problem
from tests.oracles import measured
from tests.problems import one
from tests.service import models

K0 = DesignOptions()
USUAL = WienerFallback()


@pytest.fixture(scope="module")
def model() -> ResidentModel:
    """An ordinary model with the usual fallback."""
    return models.resident(models.checkpoint(1), USUAL)


def whole(answer: DesignAnswer | SynthesisError) -> DesignAnswer:
    assert isinstance(answer, DesignAnswer)
    return answer


def nr_db(answer: DesignAnswer | SynthesisError) -> float:
    return whole(answer).design.prediction.mean_noise_reduction_db


# An update repairs much of what bad weights do; what is not a number stays none.
@pytest.mark.parametrize(("reason", "n_updates"), [("not_finite", 0), ("not_finite", 1), ("predicted_worse", 0)])
def test_what_fails_is_replaced_by_the_wiener_filter(model: ResidentModel, reason: str, n_updates: int) -> None:
    ears, options = [models.problem(seed) for seed in range(3)], DesignOptions(n_updates=n_updates)
    if reason == "predicted_worse":
        failing = models.resident(models.checkpoint(1, std=30.0), USUAL)  # as one that was badly trained
        answers = failing.design(ears, options)
    else:
        with models.damaged(model):
            answers = model.design(ears, options)
    for answer, rival in zip(answers, model.design(ears, replace(options, method="wmmse")), strict=True):
        found, expected = whole(answer), whole(rival)
        assert (found.replaced_because, found.method) == (reason, "wmmse")
        np.testing.assert_allclose(
            found.design.taps, expected.design.taps, atol=1e-3 * np.abs(expected.design.taps).max()
        )
        assert expected.replaced_because is None


def test_one_ear_s_failure_is_its_own(model: ResidentModel) -> None:
    """Of two ears in a batch only one is doubted; the other keeps the generator's filter."""
    ears = [models.problem(1), models.problem(2)]
    own = [each for each in model.backend.design(ears, K0) if isinstance(each, Design)]
    limit_db = np.mean([each.prediction.mean_noise_reduction_db for each in own])
    doubting = models.resident(models.checkpoint(1), WienerFallback(float(limit_db), -100.0))
    both = [whole(each) for each in doubting.design(ears, K0)]
    assert {each.replaced_because for each in both} == {None, "predicted_worse"}
    assert both[0].design.times_ms == both[1].design.times_ms  # those of the batch, with the comparison
    assert {"path_ratio", "generate", "reconstruct"} < set(both[0].design.times_ms)


@pytest.mark.parametrize("margin_db", [0.0, 100.0])
def test_who_has_all_compared_gets_the_better_of_two(model: ResidentModel, margin_db: float) -> None:
    ears = [models.problem(1), models.problem(2)]
    comparing = models.resident(models.checkpoint(1), WienerFallback(np.inf, margin_db))
    rivals = comparing.design(ears, DesignOptions("wmmse"))
    own = [each for each in comparing.backend.design(ears, K0) if isinstance(each, Design)]
    for answer, first, second in zip(comparing.design(ears, K0), own, rivals, strict=True):
        gain_db = nr_db(second) - first.prediction.mean_noise_reduction_db
        assert (whole(answer).replaced_because is not None) == (gain_db > margin_db)


@pytest.mark.parametrize(("margin_db", "methods"), [(100.0, ["prime"]), (-100.0, ["prime", "wmmse", "wmmse"])])
def test_a_rival_that_cannot_win_is_not_designed(
    margin_db: float, methods: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    comparing = models.resident(models.checkpoint(1), WienerFallback(np.inf, margin_db))
    found, design = [], comparing.backend.design

    def recorded(problems: list[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        found.append(options.method)
        return design(problems, options)

    monkeypatch.setattr(comparing.backend, "design", recorded)
    comparing.design([models.problem(1)], DesignOptions(n_updates=1))
    assert found == methods


@pytest.mark.parametrize("std", [1.0, 30.0])
def test_whichever_filter_answers_keeps_the_ceiling(std: float) -> None:
    model = models.resident(models.checkpoint(1, std=std), WienerFallback(np.inf, 0.0))
    for options in (K0, DesignOptions(n_updates=2)):
        (answer,) = model.design([models.problem(1, max_gain_db=-10.0)], options)
        assert whole(answer).design.prediction.max_gain_db <= -10 + 0.05


def test_where_no_method_has_a_filter_the_generator_s_error_stands(model: ResidentModel) -> None:
    huge = Problem((replace(models.ear(1), primary=np.full(8, 3e38, np.float32)),))
    (answer,) = model.design([huge], K0)
    assert isinstance(answer, SynthesisError)
    assert not USUAL.is_doubtful(InvalidPaths("primary: too many bins", "primary"))


def test_other_methods_have_no_fallback() -> None:
    failing = models.resident(models.checkpoint(1, std=30.0), WienerFallback(np.inf, -100.0))
    (answer,) = failing.design([models.problem(1)], DesignOptions("ratio_base"))
    assert (whole(answer).replaced_because, whole(answer).method) == (None, "ratio_base")


def test_it_hides_no_damaged_model(model: ResidentModel) -> None:
    model.check()
    with models.damaged(model), pytest.raises((GoldenMismatch, NonFiniteFilter)):
        model.check()


@pytest.mark.parametrize("n_updates", [0, 2])
def test_both_rivals_are_considered(model: ResidentModel, n_updates: int) -> None:
    """Whatever the generator gives, the answer is within the margin of the best of three."""
    poor = models.resident(models.checkpoint(1, std=30.0), USUAL)
    for each in (model, poor):
        for answer, *rivals in zip(
            each.design([models.problem(seed) for seed in range(3)], DesignOptions(n_updates=n_updates)),
            *(
                model.design([models.problem(seed) for seed in range(3)], DesignOptions("wmmse", updates))
                for updates in (0, n_updates)
            ),
            strict=True,
        ):
            assert nr_db(answer) >= max(map(nr_db, rivals)) - USUAL.margin_db - 1e-3


@pytest.mark.parametrize("margin_db", [100.0, -100.0])
def test_an_ear_with_a_latency_has_a_third_rival(margin_db: float, monkeypatch: pytest.MonkeyPatch) -> None:
    comparing = models.resident(models.checkpoint(1), WienerFallback(np.inf, margin_db))
    found, design = [], comparing.backend.design

    def recorded(problems: list[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        found.append((options.method, options.n_updates, len(problems)))
        return design(problems, options)

    monkeypatch.setattr(comparing.backend, "design", recorded)
    ears = [models.problem(1), models.problem(1, latency_samples=3.0)]
    first, late = (whole(each) for each in comparing.design(ears, DesignOptions(n_updates=1)))
    assert found[-1] == ("fir_wiener", 1, 1)
    assert (first.method, late.method == "prime") == ("prime" if margin_db > 0 else "wmmse", margin_db > 0)


def test_with_a_latency_a_louder_band_costs_noise_reduction(model: ResidentModel) -> None:
    """By how much more than allowed a rival's loudest scored band exceeds the generator's, or 0 dB."""
    (own,) = (each.design for each in map(whole, model.design([models.problem(1)], K0)))
    ear = models.problem(1, latency_samples=0.5)

    def with_band(nr_db: float, band: int) -> Design:
        bands = np.full(31, 10.0, np.float32)
        bands[band] = nr_db
        return replace(own, prediction=replace(own.prediction, band_reduction_db=bands))

    mean_db = own.prediction.mean_noise_reduction_db
    for band in (4, 26):  # 50 Hz, 8 kHz
        for own_db, nr_db, beyond_db in ((5, -2.9, 0), (5, -8, 5), (-6, -8, 0), (-6, -19, 10)):
            found_db = merit_db(ear, with_band(nr_db, band), with_band(own_db, band))
            # Bands are float32.
            assert found_db == pytest.approx(mean_db - LOUDER_COSTS_DB * beyond_db, abs=1e-5)
    roaring = with_band(-30, 4)
    assert merit_db(ear, roaring, with_band(5, 4)) < mean_db
    assert merit_db(ear, roaring, NonFiniteFilter("")) == merit_db(models.problem(1), roaring, own) == mean_db
    assert merit_db(ear, with_band(-30, 27), own) == mean_db  # 10 kHz


@pytest.mark.measured
@pytest.mark.parametrize("n_samples", [2.0, 4.0])
def test_no_latency_buys_noise_reduction_with_a_band_that_roars(measured_data: Path, n_samples: float) -> None:
    """WMMSE makes single bands of these ears louder by 18 dB at two samples, by 30 dB at four."""
    store = ModelStore(BUNDLED_ROOT)
    model = ResidentModel.load(store, store.resolve("default"), models.DEVICE, USUAL)
    ears = [
        one(
            *(each.astype(np.float32) for each in (case.estimated_primary, case.estimated_secondary)),
            case.coherence.astype(np.float32),
            latency_samples=n_samples,
        )
        for case in measured.measured_ears(measured_data)
    ]
    options = DesignOptions(n_updates=3)
    served, roaring = (
        np.stack([whole(each).design.prediction.noise_reduction_db for each in model.design(ears, asked)])
        for asked in (options, replace(options, method="wmmse"))
    )
    assert served.min() > -13 > -17 > roaring.min()
    assert served[:, :21].mean() > roaring[:, :21].mean() - 0.5


@pytest.mark.measured
@pytest.mark.parametrize("n_updates", [0, 1])
def test_few_measured_ears_need_it(measured_data: Path, n_updates: int) -> None:
    """Estimated from all recordings: the generator's filter is the answer for 28 of 30 ears at least."""
    store = ModelStore(BUNDLED_ROOT)
    model = ResidentModel.load(store, store.resolve("default"), models.DEVICE, USUAL)
    n_replaced = 0
    for case in measured.measured_ears(measured_data):
        paths = [each.astype(np.float32) for each in (case.estimated_primary, case.estimated_secondary)]
        ear = Problem((Paths(*paths, case.coherence.astype(np.float32)),))
        (answer,) = model.design([ear], DesignOptions(n_updates=n_updates))
        n_replaced += whole(answer).replaced_because is not None
    assert n_replaced <= 2
