"""What is stated of the machine, and the warning where it is busy."""

import pytest

from benchmarks import machine


@pytest.mark.parametrize(("busy", "warned"), [(0.01, False), (1.5, True)])
def test_busy_machine_causes_warning(
    busy: float, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda: busy)
    assert machine.describe("cpu")["quiet"] is not warned
    assert ("WARNING" in capsys.readouterr().err) is warned
