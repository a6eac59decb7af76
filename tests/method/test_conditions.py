"""Several conditions, latency and feedback, with every model and against single conditions."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.method.backends.reference import ReferenceBackend
from prime_anc.method.design import design, design_all, predict_all
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.loop import judge_loop, loop_gain
from prime_anc.method.methods import METHODS
from prime_anc.method.start.generator import Generator, model_parameters
from prime_anc.method.types import DesignOptions, Model, Paths, Problem
from prime_anc.method.updates.band_weights import BandWeights
from tests.method.cases import relative_error
from tests.model_store import cases
from tests.problems import changed

_DEFAULT = ModelStore(DEFAULT_ROOT).load("bose-qc20").parameters
_UNTRAINED = model_parameters(Generator(_DEFAULT.config), torch.zeros(1), torch.zeros(1)).weights
# Its start is the same whatever a default has learnt: on random paths some trained starts are decided by rounding.
BUNDLED = replace(_DEFAULT, weights=_UNTRAINED)
TWIN = Model(BUNDLED, ReferenceBackend(BUNDLED, torch.float64))
K3 = DesignOptions("prime", 3)


def _cuda_on_the_cpu() -> Model:
    from prime_anc.method.backends.cuda import CudaBackend

    return Model(BUNDLED, CudaBackend(BUNDLED, "cpu"))


BACKENDS: dict[str, Callable[[], Model]] = {"cpu": lambda: Model.on("cpu", BUNDLED), "cuda": _cuda_on_the_cpu}


@pytest.fixture(scope="module")
def model() -> Model:
    return BACKENDS["cpu"]()


def several(n: int, **changes: object) -> Problem:
    """An ear in n conditions."""
    conditions = (Paths(*cases.ear(seed), weight=1 + seed % 3, label=f"fit {seed}") for seed in range(n))
    return Problem(tuple(conditions), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "profile"), [*((method, "fast") for method in METHODS), ("prime", "paper")])
def test_joint_filter_equals_reference(model: Model, method: str, profile: str) -> None:
    # Without a ceiling: of the paper's start for these paths it would bind.
    ear, options = several(4, max_gain_db=300.0), DesignOptions(method, 2, profile)
    found, expected = (design(ear, options, item) for item in (model, TWIN))
    # Single precision through a solve of condition 1e4, twice: measured 2e-3; without the preconditioner, which the
    # paper's profile has not, it loses conjugacy in the second update: every single precision, torch's own as well,
    # is at 7e-2 then, and 0.003 above in the objective.
    assert relative_error(found.taps, expected.taps) < (0.12 if profile == "paper" else 1e-2)
    assert found.refinement.applied == expected.refinement.applied
    np.testing.assert_allclose(found.refinement.objective, expected.refinement.objective, atol=0.02)
    for one, other in zip(found.prediction.conditions, expected.prediction.conditions, strict=True):
        assert one.label == other.label
        assert one.prediction.mean_noise_reduction_db == pytest.approx(
            other.prediction.mean_noise_reduction_db, abs=0.2 if profile == "paper" else 0.1
        )


@pytest.mark.parametrize("n_conditions", [1, 3])
@pytest.mark.parametrize(
    "weights",
    [{"risk_weight": 2.0}, {"band_weights": BandWeights([50, 500, 5000], [4, 1, 0])}, {"max_louder_db": 0.0}],
    ids=lambda item: next(iter(item)),
)
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_weights_give_references_filter(backend: str, weights: dict[str, object], n_conditions: int) -> None:
    # Six samples late, so that bands become louder.
    ear, options = several(n_conditions, max_gain_db=300.0, latency_samples=6.0), DesignOptions("fir_wiener", 2)
    found, expected = (design(replace(ear, **weights), options, item) for item in (BACKENDS[backend](), TWIN))
    usual = design(ear, options, TWIN)
    # As without a weight.
    assert relative_error(found.taps, expected.taps) < 1e-2 < relative_error(usual.taps, expected.taps)
    np.testing.assert_allclose(found.refinement.objective, expected.refinement.objective, rtol=2e-3)


def test_prediction_per_condition(model: Model) -> None:
    ear = several(3)
    made = design(ear, K3, model)
    parts = [item.prediction for item in made.prediction.conditions]
    for condition, part in zip(ear.conditions, parts, strict=True):
        alone = Problem((Paths(condition.primary, condition.secondary, condition.coherence),))
        (expected,) = predict_all([alone], [made.taps], model)
        np.testing.assert_allclose(part.noise_reduction_db, expected.noise_reduction_db, atol=1e-3)
    weights = np.array([item.weight for item in ear.conditions])
    mean = np.average([item.mean_noise_reduction_db for item in parts], weights=weights)
    assert made.prediction.mean_noise_reduction_db == pytest.approx(mean, abs=1e-5)
    assert made.prediction.max_gain_db == max(item.max_gain_db for item in parts)
    (again,) = predict_all([ear], [made.taps], model)
    assert again.mean_noise_reduction_db == pytest.approx(made.prediction.mean_noise_reduction_db, abs=1e-5)


def test_left_out_condition_is_predicted(model: Model) -> None:
    ear = replace(several(3), max_gain_db=0.0)
    found = design(ear, replace(K3, leave_one_out=True), model).prediction.conditions
    first, second, third = ear.conditions
    rest = Problem((first, third), max_gain_db=0.0)
    taps = design(rest, K3, model).taps
    (expected,) = predict_all(
        [Problem((Paths(second.primary, second.secondary, second.coherence),))], [taps], model
    )
    left_out = found[1].left_out
    assert left_out.mean_noise_reduction_db == pytest.approx(expected.mean_noise_reduction_db, abs=1e-4)
    assert left_out.max_gain_db < 0.05
    assert left_out.mean_noise_reduction_db < found[1].prediction.mean_noise_reduction_db
    assert design(ear, K3, model).prediction.conditions[0].left_out is None


def test_margins_hold_in_every_loop(model: Model) -> None:
    ear = several(2)
    shape = np.exp(-np.arange(64) / 6) * np.cos(np.arange(64) / 5)
    loud, soft = (np.float32(level) * shape.astype(np.float32) for level in (0.3, 0.01))
    first, second = ear.conditions
    ear = Problem((replace(first, feedback=loud), replace(second, feedback=soft)))
    open_loop = design(several(2), K3, model)
    assert judge_loop(loop_gain(open_loop.taps, loud)).gain_margin_db < 6  # or this shows nothing
    made = design(ear, K3, model)
    assert made.loop.stable
    assert made.loop.gain_margin_db >= 6
    assert made.loop.phase_margin_deg >= 30
    assert made.loop.loss_db > 0
    harmless = changed(ear, feedback=soft)
    made = design(harmless, K3, model)
    assert made.loop.loss_db == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [({"weight": 0.0}, "conditions.0.weight"), ({"conditions": several(17).conditions}, "conditions")],
)
def test_invalid_problem_is_rejected(model: Model, change: dict[str, object], field: str) -> None:
    (answer,) = design_all([changed(several(2), **change)], K3, model)
    assert isinstance(answer, InvalidOption)
    assert answer.field == field
