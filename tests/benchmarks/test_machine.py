"""What is said of the machine, and the warning where it is not quiet."""

import pytest
import torch

from benchmarks import machine


def test_date_device_versions_and_commit_are_stated() -> None:
    described = machine.describe(torch.device("cpu"))
    versions = {"torch", "numpy", "scipy", "python", "transforms"}
    assert versions | {"created", "device", "commit", "cores"} <= set(described)
    assert described["quiet"] == (described["busy_cores"] <= machine.QUIET_CORES)


@pytest.mark.parametrize(("busy", "warned"), [(0.01, False), (1.5, True)])
def test_a_busy_machine_is_warned_of(
    busy: float, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda: busy)
    described = machine.describe(torch.device("cpu"))
    assert described["quiet"] is not warned
    assert ("not quiet" in capsys.readouterr().err) is warned


def test_work_of_others_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(1000, 900), (1200, 950)])
    monkeypatch.setattr(machine, "_ticks", lambda: next(readings))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    assert machine.busy_cores(0) == pytest.approx(0.75 * 4)
