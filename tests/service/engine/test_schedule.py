"""Recorded stages over static buffers: the same filters as direct calls, from buffers that never move."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model_store.store import ModelVersion
from service.designs import BATCH_SIZES, Design, Ear, Evaluation, Recipe
from service.engine.resident import ResidentModel
from service.engine.schedule import Schedule, account, side_by_side
from service.engine.stage_clock import StageClock
from synthesis.gauss_newton import MAX_UPDATES, PROFILES
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import METHODS, Synthesizer
from tests.service import models
from tests.synthesis.taped import TapedStage

SAME = {"cpu": 0.0, "cuda": 2e-3}
"""Largest difference over the largest tap. On one CPU thread the schedule runs the library's operators on the same
numbers. A replayed graph may choose other convolution and transform kernels, and updates amplify their rounding."""


def loaded(device: torch.device, batch_size: int) -> tuple[Synthesizer, Schedule, AcousticPaths]:
    """A model, its schedule with `batch_size` ears in the buffers, and the same ears as the library takes them."""
    synthesizer = models.checkpoint(1).synthesizer(torch.float32, device)
    primary, secondary = (
        torch.stack(each).to(device) for each in zip(*map(models.responses, range(batch_size)), strict=True)
    )
    paths = AcousticPaths.from_impulse_responses(primary, secondary)
    schedule = Schedule(synthesizer, batch_size)
    load(schedule, paths)
    return synthesizer, schedule, paths


def load(schedule: Schedule, paths: AcousticPaths) -> None:
    schedule.ears.device.primary.copy_(paths.primary)
    schedule.ears.device.secondary.copy_(paths.secondary)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    difference = (found - expected).abs().amax() / expected.abs().amax()
    assert float(difference) <= SAME[found.device.type]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("n_updates", "profile"), [(0, "fast"), (1, "fast"), (3, "fast"), (2, "fine"), (2, "paper")]
)
def test_the_schedule_equals_direct_calls(device: torch.device, method: str, n_updates: int, profile: str) -> None:
    synthesizer, schedule, paths = loaded(device, batch_size=2)
    clock = StageClock(device)
    clock.start()
    packed = schedule.design(method, n_updates, profile, clock).clone()
    with torch.inference_mode():
        expected = synthesizer.design(paths, n_updates, method=method, profile=profile)
    assert_same(packed[:, :2048], expected.taps)
    assert_same(schedule.taps, expected.taps)
    for item in range(2):
        found, wanted = account(packed[item].cpu().numpy(), n_updates), expected.verdict(item)
        assert set(found) == {"requested", *wanted}
        assert (found["requested"], found["applied"], found["stopped"]) == (
            n_updates,
            wanted["applied"],
            wanted["stopped"],
        )
        for name in ("objective", "step_scale", "pcg_residual"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-2)


def test_predictions_equal_direct_calls(device: torch.device) -> None:
    synthesizer, schedule, paths = loaded(device, batch_size=2)
    coherence = torch.stack([models.coherence(1), models.coherence(2)]).to(device)
    schedule.ears.device.coherence.copy_(coherence)
    clock = StageClock(device)
    clock.start()
    schedule.design("prime", 1, "fast", clock)
    for basis, known in (("coherence", coherence), ("model", None)):
        with torch.inference_mode():
            expected = side_by_side(synthesizer.predict(paths, schedule.taps, known))
        assert torch.allclose(schedule.predict(basis, clock), expected, atol=1e-3)


def test_buffers_are_read_anew_and_never_move(device: torch.device) -> None:
    synthesizer, schedule, _ = loaded(device, batch_size=1)
    addresses = [each.data_ptr() for each in (*schedule.ears.device, schedule.start, schedule.taps)]
    clock = StageClock(device)
    outputs = set()
    for seed in range(10, 14):
        primary, secondary = (each[None].to(device) for each in models.responses(seed))
        paths = AcousticPaths.from_impulse_responses(primary, secondary)
        load(schedule, paths)
        schedule.ears.device.max_gain_db.fill_(20.0)
        clock.start()
        packed = schedule.design("prime", 1, "fast", clock)
        outputs.add(packed.data_ptr())
        with torch.inference_mode():
            expected = synthesizer.design(paths, 1, max_gain_db=torch.full((1, 1), 20.0, device=device))
        assert_same(packed[:, :2048], expected.taps)
    now = (*schedule.ears.device, schedule.start, schedule.taps)
    assert [each.data_ptr() for each in now] == addresses
    assert len(outputs) == 1


def test_stages_are_marked_as_they_run(device: torch.device) -> None:
    _, schedule, _ = loaded(device, batch_size=1)
    clock = StageClock(device)
    for method, expected in (
        ("prime", ["path_ratio", "generate", "reconstruct", "refine", "predict"]),
        ("ratio_base", ["path_ratio", "reconstruct", "refine", "predict"]),
        ("projected_ratio", ["reconstruct", "refine", "predict"]),
        ("wmmse", ["generate", "refine", "predict"]),
    ):
        clock.start()
        schedule.design(method, 1, "fast", clock)
        schedule.predict("model", clock)
        times = clock.times_ms()
        assert list(times) == expected
        assert min(times.values()) > 0


def test_an_ear_without_a_solution_leaves_the_others_alone(device: torch.device) -> None:
    synthesizer, schedule, paths = loaded(device, batch_size=2)
    schedule.ears.device.primary[1] = torch.inf
    clock = StageClock(device)
    clock.start()
    schedule.design("wmmse", 0, "fast", clock)
    with torch.inference_mode():
        expected = synthesizer.design(AcousticPaths(paths.primary[:1], paths.secondary[:1]), method="wmmse")
    assert_same(schedule.taps[:1], expected.taps)
    assert bool(schedule.taps[1].isnan().all())


@pytest.mark.parametrize("profile", PROFILES)
def test_one_recorded_update_is_replayed_for_every_k(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python does while a stage is recorded happens once, what operators do in every replay."""
    monkeypatch.setattr("service.engine.schedule.GraphedStage", TapedStage)
    synthesizer, schedule, _ = loaded(torch.device("cpu"), batch_size=2)
    clock = StageClock(torch.device("cpu"))
    clock.start()
    schedule.design("prime", 1, profile, clock)
    schedule.predict("model", clock)
    recorded = set(schedule._stages)
    for seed, n_updates in enumerate((3, 0, 8, 1, 5, 2)):
        responses = (torch.stack(each) for each in zip(*map(models.responses, (seed, seed + 20)), strict=True))
        paths = AcousticPaths.from_impulse_responses(*responses)
        load(schedule, paths)
        packed = schedule.design("prime", n_updates, profile, clock)
        with torch.inference_mode():
            expected = synthesizer.design(paths, n_updates, profile=profile)
            predicted = side_by_side(synthesizer.predict(paths, expected.taps))
        assert torch.equal(packed[:, :2048], expected.taps)
        assert torch.equal(schedule.predict("model", clock), predicted)
        for item in range(2):
            found = account(packed[item].numpy(), n_updates)
            assert found == {"requested": n_updates, **expected.verdict(item)}
    assert set(schedule._stages) == recorded


def test_nothing_is_recorded_once_a_model_is_warm() -> None:
    model = ResidentModel(ModelVersion("ears", 1, Path(), ""), models.checkpoint(1), torch.device("cpu"))

    def recorded() -> dict[int, set[object]]:
        return {size: set(schedule._stages) for size, schedule in model._schedules.items()}

    model.warm_up()
    warm = recorded()
    plain = Ear(*(each.numpy() for each in models.responses(3)))
    known = replace(plain, coherence=models.coherence(3).numpy())
    for ears in ([plain], [known], [plain, known]):
        for method in METHODS:
            for profile in PROFILES:
                for n_updates in (0, 1, MAX_UPDATES):
                    model.design(Recipe(None, method, n_updates, profile), ears)
        model.evaluate(ears, [np.zeros(2048, np.float32)] * len(ears))
    assert recorded() == warm


def test_on_a_gpu_a_warm_model_has_recorded_what_any_number_of_ears_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch's operators, on tape. One method and profile: the others are warmed up beside them, as above."""
    monkeypatch.setattr("service.engine.schedule.GraphedStage", TapedStage)
    monkeypatch.setattr("synthesis.cpu.served", lambda synthesizer: synthesizer)
    monkeypatch.setattr("service.engine.resident.METHODS", ("prime",))
    monkeypatch.setattr("service.engine.resident.PROFILES", ("fast",))
    model = ResidentModel(ModelVersion("ears", 1, Path(), ""), models.checkpoint(1), torch.device("cpu"))
    model.device = torch.device("cuda")  # of which it asks the type alone
    model.warm_up()
    assert tuple(model._schedules) == BATCH_SIZES
    monkeypatch.setattr(TapedStage, "_record", lambda self: pytest.fail("recorded while ears wait"))
    plain = Ear(*(each.numpy() for each in models.responses(3)))
    pair = [plain, replace(plain, coherence=models.coherence(3).numpy())]
    recipe = Recipe(n_updates=1)
    alone = [model.design(recipe, [ear])[0] for ear in pair]
    for n_ears in sorted({*BATCH_SIZES, *(size + 1 for size in BATCH_SIZES[:-1])}):  # the most and fewest of each
        for item, answer in enumerate(model.design(recipe, (pair * n_ears)[:n_ears])):
            expected = alone[item % 2]
            assert isinstance(answer, Design)
            assert isinstance(expected, Design)
            assert np.abs(answer.taps - expected.taps).max() < 1e-3 * np.abs(expected.taps).max()
            assert answer.figures.mean_noise_reduction_db == pytest.approx(
                expected.figures.mean_noise_reduction_db, abs=1e-2
            )
    assert tuple(model._schedules) == BATCH_SIZES


def test_on_a_cpu_no_row_is_designed_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ears are a batch of two and one alone; each gets what it gets alone, and the times of all."""
    model = ResidentModel(ModelVersion("ears", 1, Path(), ""), models.checkpoint(1), torch.device("cpu"))
    sizes, load_one = [], model._loaded
    monkeypatch.setattr(
        model, "_loaded", lambda ears, goes_on: (sizes.append(len(ears)), load_one(ears, goes_on))[1]
    )
    three = [Ear(*(each.numpy() for each in models.responses(seed))) for seed in (1, 2, 3)]
    for method in METHODS:
        together = [each for each in model.design(Recipe(method=method), three) if isinstance(each, Design)]
        assert sizes == [2, 1]
        assert together[0].times_ms == together[1].times_ms == together[2].times_ms
        for found, ear in zip(together, three, strict=True):
            (alone,) = model.design(Recipe(method=method), [ear])
            assert isinstance(alone, Design)
            assert np.abs(found.taps - alone.taps).max() < 1e-5 * np.abs(alone.taps).max()
        evaluated = model.evaluate(three, [each.taps for each in together])
        assert [each.figures.max_gain_db for each in evaluated if isinstance(each, Evaluation)] == pytest.approx(
            [float(each.figures.max_gain_db) for each in together], abs=1e-3
        )
        sizes.clear()
    assert set(model._schedules) == {1, 2}
