"""The net under the generator: it catches what fails, lets pass what works, and hides no damaged model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch

from model_store.errors import GoldenMismatch
from model_store.store import BUNDLED_ROOT, ModelStore, ModelVersion
from service.app import create_app
from service.designs import Design, Ear, Recipe
from service.engine import net
from service.engine.net import Net
from service.engine.resident import ResidentModel
from service.formats import wire
from service.settings import Settings
from synthesis.errors import InvalidPaths, NonFiniteFilter
from tests.oracles import measured
from tests.service import models
from tests.service.bodies import as_responses
from tests.service.conftest import connected
from tests.service.observability.test_metrics import scraped, value

CPU = torch.device("cpu")


def ear(seed: int) -> Ear:
    primary, secondary = (each.numpy() for each in models.responses(seed))
    return Ear(primary, secondary, models.coherence(seed).numpy())


def resident(std: float | None = None) -> ResidentModel:
    """A model whose last layer is drawn anew, as one that was badly trained: with a golden case that it passes."""
    checkpoint = models.checkpoint(1, std) if std is not None else models.checkpoint(1)
    return ResidentModel(ModelVersion("ears", 1, Path(), "sha256:" + "0" * 64), checkpoint, CPU)


def poison(model: ResidentModel) -> None:
    """What broken memory does: the weights of a model that was checked are NaN."""
    models.changed(model, lambda weight: weight.fill_(torch.nan))


def failing(reason: str) -> ResidentModel:
    """A model that fails for that reason."""
    if reason == net.PREDICTED_WORSE:
        return resident(std=30.0)
    model = resident()
    poison(model)
    return model


# An update repairs much of what bad weights do; what is not a number stays none.
@pytest.mark.parametrize(("reason", "n_updates"), [("not_finite", 0), ("not_finite", 1), ("predicted_worse", 0)])
def test_what_fails_is_replaced_by_the_wiener_filter(reason: str, n_updates: int) -> None:
    model = failing(reason)
    ears = [ear(seed) for seed in range(3)]
    answers = model.design(Recipe(n_updates=n_updates), ears)
    rivals = model.design(Recipe(method="wmmse", n_updates=n_updates), ears)
    for answer, rival in zip(answers, rivals, strict=True):
        assert isinstance(answer, Design)
        assert isinstance(rival, Design)
        assert (answer.replaces, answer.recipe.method) == (reason, "wmmse")
        difference = np.abs(answer.taps - rival.taps).max()  # three are designed in a batch of four, or alone
        assert difference < 1e-3 * np.abs(rival.taps).max()
        assert np.isfinite(answer.figures.noise_reduction_db).all()
        assert rival.replaces is None


def test_one_ear_s_failure_is_its_own() -> None:
    """Of two ears in a batch only one is doubted; the other keeps the generator's filter."""
    model, ears = resident(), [ear(1), ear(2)]
    alone = model._designed(Recipe(), ears)
    limits = sorted(float(each.figures.mean_noise_reduction_db) for each in alone if isinstance(each, Design))
    model.net = Net(sum(limits) / 2, -100.0)
    both = [each for each in model.design(Recipe(), ears) if isinstance(each, Design)]
    assert {each.replaces for each in both} == {None, "predicted_worse"}
    assert both[0].times_ms == both[1].times_ms  # those of the batch, with what the comparison took
    assert {"path_ratio", "generate", "reconstruct"} < set(both[0].times_ms)


def test_who_has_all_compared_gets_the_better_of_two_that_take_much_away() -> None:
    model, ears = resident(), [ear(1), ear(2)]
    own, rivals = (model._designed(Recipe(method=method), ears) for method in ("prime", "wmmse"))
    for margin_db in (0.0, 100.0):
        model.net = Net(np.inf, margin_db)
        for answer, first, second in zip(model.design(Recipe(), ears), own, rivals, strict=True):
            assert isinstance(first, Design)
            assert isinstance(second, Design)
            assert isinstance(answer, Design)
            gain_db = second.figures.mean_noise_reduction_db - first.figures.mean_noise_reduction_db
            assert (answer.replaces is not None) == (gain_db > margin_db)
            assert {"path_ratio", "generate"} < set(answer.times_ms)


def test_a_smaller_advantage_is_no_reason() -> None:
    model = resident()
    own, rival = (model._designed(Recipe(method=method), [ear(1)])[0] for method in ("prime", "wmmse"))
    assert isinstance(own, Design)
    assert isinstance(rival, Design)
    advantage_db = float(rival.figures.mean_noise_reduction_db) - float(own.figures.mean_noise_reduction_db)
    for margin_db, replaces in ((advantage_db - 0.1, "predicted_worse"), (advantage_db + 0.1, None)):
        answer = Net(margin_db=margin_db).better(own, rival, 30.0)
        assert isinstance(answer, Design)
        assert answer.replaces == replaces


def test_a_filter_that_keeps_its_ceiling_is_not_given_up_for_one_that_does_not() -> None:
    """A low ceiling is itself what makes the generator's filter take little away."""
    (unbounded,) = resident()._designed(Recipe(method="wmmse"), [ear(1)])
    assert isinstance(unbounded, Design)
    ceiling_db = float(unbounded.figures.max_gain_db) - 20.0
    (answer,) = resident().design(Recipe(), [replace(ear(1), max_gain_db=ceiling_db)])
    assert isinstance(answer, Design)
    assert float(answer.figures.mean_noise_reduction_db) < Net().below_db
    advantage_db = unbounded.figures.mean_noise_reduction_db - answer.figures.mean_noise_reduction_db
    assert float(advantage_db) > Net().margin_db
    assert answer.replaces is None
    assert float(answer.figures.max_gain_db) <= ceiling_db + net.GAIN_MARGIN_DB


def test_where_no_method_has_a_filter_the_generator_s_error_stands() -> None:
    model = resident()
    huge = Ear(np.full(8, 3e38, np.float32), ear(1).secondary)
    (answer,) = model.design(Recipe(), [huge])
    assert isinstance(answer, NonFiniteFilter)
    assert not Net().is_doubtful(InvalidPaths("primary: found too many bins", "primary"))


def test_other_methods_have_no_net() -> None:
    (answer,) = resident(std=30.0).design(Recipe(method="ratio_base"), [ear(1)])
    assert isinstance(answer, Design)
    assert (answer.replaces, answer.recipe.method) == (None, "ratio_base")


def test_the_net_hides_no_damaged_model() -> None:
    model = resident()
    model.check()
    poison(model)
    with pytest.raises((GoldenMismatch, NonFiniteFilter)):
        model.check()


@pytest.mark.measured
@pytest.mark.parametrize("n_updates", [0, 1])
def test_no_measured_ear_needs_it(measured_data: Path, n_updates: int) -> None:
    """Nor is any compared: they all lie above the limit."""
    store = ModelStore(BUNDLED_ROOT)
    model = ResidentModel(store.resolve("default"), store.load("default"), CPU)
    for case in measured.measured_ears(measured_data):
        paths = [each.astype(np.float32) for each in (case.estimated_primary, case.estimated_secondary)]
        for known in (case.coherence.astype(np.float32), None):
            (answer,) = model._designed(Recipe(n_updates=n_updates), [Ear(*paths, known)])
            assert not Net().is_doubtful(answer)


@pytest.mark.anyio
@pytest.mark.parametrize("binary", [False, True])
async def test_the_answer_says_so_and_a_counter_rises(settings: Settings, tmp_path: Path, binary: bool) -> None:
    ModelStore(tmp_path, include_bundled=False).publish("ears", models.checkpoint(1, std=30.0))
    app = create_app(settings.model_copy(update={"store": tmp_path}))
    async with app.router.lifespan_context(app), connected(app) as client:
        await app.state.service.engine.started()
        content = orjson.dumps(as_responses(ear(1)))
        headers = {"Content-Type": "application/json"}
        if binary:
            content = wire.encode(*(each.numpy() for each in models.responses(1)))
            headers = dict.fromkeys(("Content-Type", "Accept"), "application/octet-stream")
        answer = await client.post("/synthesize", content=content, headers=headers)
        assert answer.status_code == 200
        if binary:
            assert "generator_replaced" in answer.headers["x-warnings"]
        else:
            document = answer.json()
            assert document["method"] == "wmmse"
            assert document["warnings"][0]["code"] == "generator_replaced"
        samples = await scraped(app)
        assert value(samples, "prime_replaced_designs_total", reason="predicted_worse") == 1
        assert value(samples, "prime_replaced_designs_total", reason="not_finite") == 0
