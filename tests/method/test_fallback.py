"""The Wiener fallback replaces failed filters, keeps good ones, and hides no damaged model."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.method.candidates import LOUDER_COSTS_DB, merit_db
from prime_anc.method.design import design_all
from prime_anc.method.errors import NonFiniteFilter, SynthesisError
from prime_anc.method.types import Design, DesignOptions, Draft, Fallback, Model, Problem
from tests.oracles import measured
from tests.problems import one
from tests.service import models

K0 = DesignOptions()
USUAL = Fallback()


@pytest.fixture(scope="module")
def model() -> Model:
    """An ordinary model."""
    return trained()


def trained(std: float = 0.05) -> Model:
    """A model; large weights resemble bad training."""
    return Model.on(models.DEVICE, models.checkpoint(1, std).parameters)


def damaged(model: Model) -> Model:
    """The reference model with NaN weights; the core would bound such a correction."""
    return Model.on("reference", models.with_last_layer(model.parameters, np.nan))


def whole(answer: Design | SynthesisError) -> Design:
    assert isinstance(answer, Design)
    return answer


def nr_db(answer: Design | SynthesisError, n_updates: int = 0) -> float:
    return whole(answer).prediction.compared_db(n_updates)


# An update repairs much of what bad weights do; what is not a number stays none.
@pytest.mark.parametrize(("reason", "n_updates"), [("not_finite", 0), ("not_finite", 1), ("predicted_worse", 0)])
def test_failing_filter_is_replaced(model: Model, reason: str, n_updates: int) -> None:
    problems, options = [models.problem(seed) for seed in range(3)], DesignOptions(n_updates=n_updates)
    failing = trained(std=30.0) if reason == "predicted_worse" else damaged(model)
    found = design_all(problems, options, failing, USUAL)
    rivals = [design_all(problems, DesignOptions("wmmse", k), model, USUAL) for k in sorted({0, n_updates})]
    for answer, *others in zip(map(whole, found), *(map(whole, each) for each in rivals), strict=True):
        assert (answer.replaced_because, answer.method) == (reason, "wmmse")
        best = max(others, key=partial(nr_db, n_updates=n_updates))
        np.testing.assert_allclose(answer.taps, best.taps, atol=1e-3 * np.abs(best.taps).max())
        assert best.replaced_because is None


def test_start_replaces_no_weighted_filter(model: Model) -> None:
    """A large weight costs mean noise reduction, which is no reason for a filter that it does not reach."""
    problems = [replace(models.problem(seed), risk_weight=10.0, max_gain_db=60.0) for seed in range(4)]
    starts = [nr_db(item, 3) for item in design_all(problems, DesignOptions("wmmse"), model)]
    found = list(map(whole, design_all(problems, DesignOptions(n_updates=3), model, USUAL)))
    assert any(start > nr_db(item, 3) + USUAL.margin_db for start, item in zip(starts, found, strict=True))
    assert all(item.refinement.applied for item in found)


@pytest.mark.parametrize("margin_db", [0.0, 100.0])
def test_better_of_two_answers(model: Model, margin_db: float) -> None:
    problems = [models.problem(1), models.problem(2)]
    found = design_all(problems, K0, model, Fallback(np.inf, margin_db))
    for answer, generated, rival in zip(
        found, design_all(problems, K0, model), design_all(problems, DesignOptions("wmmse"), model), strict=True
    ):
        assert (whole(answer).replaced_because is not None) == (nr_db(rival) - nr_db(generated) > margin_db)


Call = tuple[str, int, int]


def recorded(monkeypatch: pytest.MonkeyPatch, device: str = "cpu") -> tuple[Model, list[Call]]:
    """A model that records method, updates and number of problems of its backend's calls."""
    model, calls = Model.on(device, trained().parameters), list[Call]()
    draft = model.backend.draft

    def noted(problems: list[Problem], options: DesignOptions, with_wmmse: bool) -> list[Draft | SynthesisError]:
        calls.append((options.method, options.n_updates, len(problems)))
        return draft(problems, options, with_wmmse)

    monkeypatch.setattr(model.backend, "draft", noted)
    return model, calls


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(("margin_db", "methods"), [(100.0, ["prime"]), (-100.0, ["prime", "wmmse", "wmmse"])])
def test_rival_that_cannot_win_is_not_designed(
    margin_db: float, methods: list[str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = recorded(monkeypatch, device)
    design_all([models.problem(1)], DesignOptions(n_updates=1), model, Fallback(np.inf, margin_db))
    assert [method for method, *_ in calls] == methods


@pytest.mark.parametrize("margin_db", [100.0, -100.0])
def test_latency_adds_third_rival(margin_db: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = recorded(monkeypatch)
    problems = [models.problem(1), models.problem(1, latency_samples=3.0)]
    found = design_all(problems, DesignOptions(n_updates=1), model, Fallback(np.inf, margin_db))
    first, late = map(whole, found)
    assert calls[-1] == ("fir_wiener", 1, 1)
    assert (first.method, late.method == "prime") == ("prime" if margin_db > 0 else "wmmse", margin_db > 0)


def test_merit_counts_louder_band(model: Model) -> None:
    """A rival pays for a loudest scored band that exceeds the generator's by more than allowed."""
    generated = whole(design_all([models.problem(1)], K0, model)[0])
    late = models.problem(1, latency_samples=0.5)

    def with_band(nr_db: float, band: int) -> Design:
        bands = np.full(31, 10.0, np.float32)
        bands[band] = nr_db
        return replace(generated, prediction=replace(generated.prediction, band_reduction_db=bands))

    for band, n_updates in ((4, 0), (26, 1)):  # 50 Hz, 8 kHz
        mean_db = nr_db(generated, n_updates)
        for generated_db, made_db, beyond_db in ((5, -2.9, 0), (5, -8, 5), (-6, -8, 0), (-6, -19, 10)):
            found_db = merit_db(late, with_band(generated_db, band), 0.5, n_updates, with_band(made_db, band))
            # Bands are float32.
            assert found_db == pytest.approx(mean_db - LOUDER_COSTS_DB * beyond_db, abs=1e-5)
    mean_db, roaring = nr_db(generated), with_band(-30, 4)
    assert merit_db(late, with_band(5, 4), 0.5, 0, roaring) < mean_db
    for other, problem in ((NonFiniteFilter(""), late), (generated, models.problem(1))):
        assert merit_db(problem, other, 0.5, 0, roaring) == mean_db
    assert merit_db(late, generated, 0.5, 0, with_band(-30, 27)) == mean_db  # 10 kHz
    assert merit_db(late, generated, 0.5, 0, generated) == mean_db + 0.5


@pytest.mark.measured
@pytest.mark.parametrize("n_samples", [2.0, 4.0])
def test_late_measured_ears_have_no_loud_band(ears: list[measured.MeasuredEar], n_samples: float) -> None:
    """WMMSE makes single bands of these ears louder by 23 dB at two samples, by 32 dB at four; its updates take most of
    that back."""
    model = Model.on(models.DEVICE, ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)
    problems = [
        one(
            *(item.astype(np.float32) for item in (case.estimated_primary, case.estimated_secondary)),
            case.coherence.astype(np.float32),
            latency_samples=n_samples,
        )
        for case in ears
    ]
    options = DesignOptions(n_updates=3)
    served, roaring = (
        np.stack([whole(item).prediction.noise_reduction_db for item in design_all(problems, choice, model, USUAL)])
        for choice in (options, DesignOptions("wmmse"))
    )
    assert served.min() > -14 > -20 > roaring.min()
    assert served[:, :21].mean() > roaring[:, :21].mean() - 0.5
