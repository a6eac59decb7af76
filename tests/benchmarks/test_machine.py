"""What is stated of the machine, and the warning where it is busy."""

import pytest

from benchmarks import machine


def test_date_device_versions_and_commit_are_stated() -> None:
    described = machine.describe("cpu")
    assert {"torch", "numpy", "scipy", "python", "created", "device", "commit", "cores"} <= set(described)
    assert described["quiet"] == (described["busy_cores"] <= machine.MAX_BUSY_CORES)


@pytest.mark.parametrize(("busy", "warned"), [(0.01, False), (1.5, True)])
def test_busy_machine_causes_warning(
    busy: float, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda: busy)
    assert machine.describe("cpu")["quiet"] is not warned
    assert ("WARNING" in capsys.readouterr().err) is warned


def test_busy_cores_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(1000, 900), (1200, 950)])
    monkeypatch.setattr(machine, "_ticks", lambda: next(readings))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    assert machine.busy_cores(0) == pytest.approx(0.75 * 4)
