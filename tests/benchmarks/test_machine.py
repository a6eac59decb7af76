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
