"""Every command in its quick form: it runs, and its JSON file holds what its table shows; a busy machine is said."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks import core, load, machine
from benchmarks.__main__ import main


def document_of(command: str, folder: Path, *arguments: str) -> dict[str, Any]:
    assert main([command, "--quick", "--device", "cpu", *arguments, "--out", str(folder)]) == 0
    document = json.loads((folder / f"{command}.json").read_text())
    assert {"created", "commit", "device", "quiet"} <= set(document["machine"])
    return document


def test_core(tmp_path: Path) -> None:
    table = pd.DataFrame(document_of("core", tmp_path)["rows"]).set_index(["designer", "k"])
    assert set(table.index) == {("cpu", k) for k in core.N_UPDATES} | {(core.SOLVER, 0)}
    ratio = table.p50_ms["cpu", 1] / table.p50_ms[core.SOLVER, 0]
    assert table.over_solver["cpu", 1] == pytest.approx(ratio, rel=1e-3)
    assert table.noise_reduction_db["cpu"].is_monotonic_increasing


def test_load_sheds_beyond_capacity(tmp_path: Path) -> None:
    """Nothing is answered that may not be."""
    document = document_of("load", tmp_path)
    table = pd.DataFrame(document["rows"]).set_index(["phase", "kind", "status"])
    assert document["figures"]["capacity_per_s"] > 0
    assert set(table.index.unique("status")) <= {200, 503}
    unloaded = table.loc["unloaded"]
    assert set(unloaded.index.unique("kind")) == {"binary", "binary spectra", "json", "json spectra"}
    assert (unloaded.latency_p50_ms > unloaded.besides_p50_ms).all()
    assert table.loc["recovered", "binary", 200].n == 10


def test_other_commands_run(tmp_path: Path) -> None:
    assert set(document_of("load", tmp_path, "--mixed")["figures"]["shares"]) == set(load.SHARES)
    (row,) = document_of("train", tmp_path)["rows"]
    assert row["seconds_per_model"] == pytest.approx(row["recipe_updates"] / row["updates_per_s"], rel=1e-3)
    (row,) = document_of("start", tmp_path)["rows"]
    assert row["ready_s"] > 0.1
    assert row["resident_mb"] > 30


def test_mistake_in_options_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["core", "--quick", "--device", "cpu", "--data", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def answers(**times_ms: tuple[int, float]) -> pd.DataFrame:
    rows = [
        {"phase": phase, "kind": "binary", "status": status, "latency": ms, "total": ms, "core": ms / 2}
        for phase, (status, ms) in times_ms.items()
    ]
    return pd.DataFrame(rows)


def test_late_answers_are_mistakes() -> None:
    good = answers(unloaded=(200, 4.0), overload=(200, 7.0), recovered=(200, 5.0))
    assert load.judged(good, {}) == []
    late = answers(unloaded=(200, 4.0), overload=(200, 9.0), recovered=(200, 7.0))
    shed = answers(overload=(503, 6.0))
    found = load.judged(pd.concat([late, shed]), {})
    assert [item.partition(":")[0] for item in found] == ["accepted", "shed", "recovered"]
    assert load.judged(good, {"shares": {"json": 0.4, "binary": 0.6}})[0].startswith("json: 0.40")
    assert load.summary(good).besides_p50_ms.tolist() == [2.0, 3.5, 2.5]


def test_wrong_answers_are_mistakes() -> None:
    assert load.is_right(bytes(8192), "binary")
    assert not load.is_right(bytes(8191), "binary")
    assert not load.is_right(b"\xff" * 8192, "binary spectra")
    assert load.is_right(b"{}", "json")
    assert not load.is_right(b"[]", "json")
    assert load.forbidden(pd.DataFrame({"mistake": ["status 500", None, "status 500"]})) == ["status 500: 2 times"]


@pytest.mark.parametrize(("busy", "warned"), [(0.01, False), (1.5, True)])
def test_busy_machine_causes_warning(
    busy: float, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda: busy)
    assert machine.describe("cpu")["quiet"] is not warned
    assert ("WARNING" in capsys.readouterr().err) is warned


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_killed_command_takes_service_along() -> None:
    program = (
        "from benchmarks.service_process import started_service; import time\n"
        "with started_service(None, '--device', 'cpu') as service:\n"
        "    print(service.process.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline, "the service goes on"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
