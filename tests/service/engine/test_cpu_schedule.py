"""Designs on NumPy arrays alone: what the schedule of tensors gives, to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from model_store.store import ModelStore
from service.engine.cpu_schedule import CpuSchedule, schedule_of
from service.engine.schedule import Schedule, account
from service.engine.stage_clock import StageClock
from synthesis import cpu
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import METHODS
from tests.oracles import measured
from tests.service import models
from tests.synthesis.cases import hopeless_paths

CPU = torch.device("cpu")


def both(batch_size: int) -> tuple[Schedule, Schedule]:
    """The schedule that is served, and that of tensors, with the same ears in their buffers."""
    model = models.checkpoint(1).synthesizer(torch.float32, CPU)
    schedules = schedule_of(cpu.served(model), batch_size), Schedule(cpu.served(model), batch_size)
    primary, secondary = (torch.stack(each) for each in zip(*map(models.responses, range(batch_size)), strict=True))
    load(schedules, AcousticPaths.from_impulse_responses(primary, secondary))
    for each in schedules:
        each.ears.host.coherence.copy_(torch.stack([models.coherence(seed) for seed in range(batch_size)]))
        each.ears.host.max_gain_db.copy_(torch.linspace(12.0, 30.0, batch_size)[:, None])
    return schedules


def load(schedules: tuple[Schedule, ...], paths: AcousticPaths) -> None:
    for each in schedules:
        each.ears.host.primary.copy_(paths.primary)
        each.ears.host.secondary.copy_(paths.secondary)


def assert_same_design(schedules: tuple[Schedule, Schedule], method: str, n_updates: int, profile: str) -> None:
    clocks = StageClock(CPU), StageClock(CPU)
    packed = []
    for schedule, clock in zip(schedules, clocks, strict=True):
        clock.start()
        packed.append(schedule.design(method, n_updates, profile, clock).clone())
        for basis in ("model", "coherence"):
            packed.append(schedule.predict(basis, clock).clone())
    for found, expected in zip(packed[:3], packed[3:], strict=True):
        assert np.array_equal(found.numpy(), expected.numpy(), equal_nan=True)
    for row in range(schedules[0].batch_size):
        found, expected = (account(each[row].numpy(), n_updates) for each in (packed[0], packed[3]))
        assert found == expected or not np.isfinite(packed[3][row, :2048].numpy()).all()
    assert torch.equal(schedules[0].taps.nan_to_num(), schedules[1].taps.nan_to_num())
    assert list(clocks[0].times_ms()) == list(clocks[1].times_ms())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("n_updates", "profile"),
    [(0, "fast"), (1, "fast"), (8, "fast"), (0, "fine"), (2, "fine"), (1, "paper")],
)
def test_designs_and_figures_are_the_same_to_the_bit(method: str, n_updates: int, profile: str) -> None:
    schedules = both(2)
    assert isinstance(schedules[0], CpuSchedule)
    assert not isinstance(schedules[1], CpuSchedule)
    assert_same_design(schedules, method, n_updates, profile)


def test_buffers_are_read_anew_for_each_design() -> None:
    schedules = both(1)
    for seed in (5, 6):
        primary, secondary = (each[None] for each in models.responses(seed))
        load(schedules, AcousticPaths.from_impulse_responses(primary, secondary))
        assert_same_design(schedules, "prime", 3, "fast")


def test_hopeless_paths_come_to_the_same() -> None:
    paths = hopeless_paths()
    schedules = both(paths.batch_size)
    load(schedules, paths)
    assert_same_design(schedules, "prime", 3, "fast")


def test_the_bundled_model_is_the_same_on_every_measured_ear(measured_data: Path) -> None:
    model = cpu.served(ModelStore().load("default").synthesizer(torch.float32, CPU))
    ears = measured.measured_ears(measured_data)
    paths = AcousticPaths(
        *(
            torch.from_numpy(np.fft.rfft(each, measured.N_FFT))
            for each in ([ear.estimated_primary for ear in ears], [ear.estimated_secondary for ear in ears])
        )
    )
    schedules = schedule_of(model, paths.batch_size), Schedule(model, paths.batch_size)
    load(schedules, paths)
    for n_updates in (0, 1, 3):
        assert_same_design(schedules, "prime", n_updates, "fast")


def test_only_what_runs_on_arrays_has_it() -> None:
    model = models.checkpoint(1).synthesizer(torch.float32, CPU)
    assert not isinstance(schedule_of(model, 1), CpuSchedule)
    assert isinstance(schedule_of(cpu.served(model), 1), CpuSchedule)
