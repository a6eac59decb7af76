"""The Wiener fallback replaces failed filters, keeps good ones, and hides no damaged model."""

from dataclasses import replace

import numpy as np
import pytest

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.method.design import design_all
from prime_anc.method.errors import SynthesisError
from prime_anc.method.posing import OpenLoop
from prime_anc.method.types import Design, DesignOptions, Fallback, Filter, Model
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
@pytest.mark.parametrize(("reason", "n_updates"), [("not_finite", 1), ("predicted_worse", 0)])
def test_failing_filter_is_replaced(model: Model, reason: str, n_updates: int) -> None:
    problems, options = [models.problem(seed) for seed in range(3)], DesignOptions(n_updates=n_updates)
    failing = trained(std=30.0) if reason == "predicted_worse" else damaged(model)
    found = design_all(problems, options, failing, USUAL)
    rivals = design_all(problems, DesignOptions("wmmse", n_updates), model)
    for answer, rival in zip(map(whole, found), map(whole, rivals), strict=True):
        assert (answer.replaced_because, answer.method) == (reason, "wmmse")
        np.testing.assert_allclose(answer.taps, rival.taps, atol=1e-3 * np.abs(rival.taps).max())


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


@pytest.mark.parametrize(("margin_db", "methods"), [(100.0, ["prime"]), (-100.0, ["prime", "wmmse", "wmmse"])])
def test_rival_that_cannot_win_is_not_designed(
    margin_db: float, methods: list[str], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, filters = list[str](), model.backend.filters

    def noted(problems: list[OpenLoop], options: DesignOptions) -> list[Filter | SynthesisError]:
        calls.append(options.method)
        return filters(problems, options)

    monkeypatch.setattr(model.backend, "filters", noted)
    design_all([models.problem(1)], DesignOptions(n_updates=1), model, Fallback(np.inf, margin_db))
    assert calls == methods


@pytest.mark.measured
def test_late_measured_ears_have_no_loud_band(ears: list[measured.MeasuredEar]) -> None:
    """WMMSE makes single bands of these ears louder by 32 dB at four samples; its updates take most of that back."""
    model = Model.on(models.DEVICE, ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)
    problems = [
        one(np.float32(ear.estimated_primary), np.float32(ear.estimated_secondary), latency_samples=4.0)
        for ear in ears
    ]
    options = DesignOptions(n_updates=3)
    served, roaring = (
        np.stack([whole(item).prediction.noise_reduction_db for item in design_all(problems, choice, model, USUAL)])
        for choice in (options, DesignOptions("wmmse"))
    )
    assert served.min() > -14 > -20 > roaring.min()
    assert served[:, :21].mean() > roaring[:, :21].mean() - 0.5
