"""Every command in its quick form: it runs, and its JSON file holds what its table shows; a busy machine is said."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import core, http, machine
from benchmarks.__main__ import main


def rows_of(command: str, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    assert main([command, "--quick", "--device", "cpu", *arguments, "--out", str(folder)]) == 0
    document = json.loads((folder / f"{command}.json").read_text())
    assert {"created", "commit", "device", "quiet"} <= set(document["machine"])
    return document["rows"]


def test_core(tmp_path: Path) -> None:
    rows = {row["designer"]: row for row in rows_of("core", tmp_path, "--reference")}
    assert {f"{name} k={k}" for name in ("cpu", "reference") for k in core.N_UPDATES} | {core.SOLVER} <= set(rows)
    solver = rows[core.SOLVER]["core_ms"]["p50"]
    row = rows["cpu k=1"]
    assert row["over_solve_toeplitz"] == pytest.approx(row["core_ms"]["p50"] / solver, rel=1e-3)
    assert row["stages_ms"]["total"]["p50"] >= row["core_ms"]["p50"]
    assert row["quality"]["n_ears"] == 4
    for k in core.N_UPDATES:
        same = [rows[f"{name} k={k}"]["quality"]["noise_reduction_db"] for name in ("cpu", "reference")]
        assert same[0] == pytest.approx(same[1], abs=0.02)


def test_http(tmp_path: Path) -> None:
    rows = rows_of("http", tmp_path)
    assert {row["request"] for row in rows if "request" in row} == {
        "binary, impulse responses",
        "binary, spectra",
        "JSON, impulse responses",
        "JSON, spectra in base64",
    }
    for row in rows:
        if "request" in row:
            assert row["failed"] == []
            assert row["latency_ms"]["p50"] > row["over_core_ms"]["p50"] > 0
        else:
            assert row["designs_per_s"] > 0


def test_start(tmp_path: Path) -> None:
    (row,) = rows_of("start", tmp_path)
    assert row["n"] == 2
    assert 0.1 < row["ready_p50_s"] <= row["ready_max_s"]
    assert row["resident_p50_mb"] > 30


def test_train(tmp_path: Path) -> None:
    (row,) = rows_of("train", tmp_path)
    assert row["extrapolated"] is True
    expected = row["recipe_updates"] / row["updates_per_s"]
    assert row["seconds_per_model"] == pytest.approx(expected, rel=1e-3)


def test_mistake_in_options_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["core", "--quick", "--device", "cpu", "--data", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_server_stages_are_subtracted() -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nServer-Timing: decode;dur=1.0, core;dur=3.5, predict;dur=0.5, total;dur=6.0\r\n"
        b"Content-Length: 4\r\n\r\nbody"
    )
    latencies = http.Latencies()
    latencies.add(answer, 10.0)
    latencies.add(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 1.0)
    row = latencies.row()
    assert row["failed"] == [503]
    assert row["latency_ms"]["n"] == 1
    assert row["over_core_ms"]["p50"] == pytest.approx(10 - 1 - 3.5 - 0.5)


@pytest.mark.parametrize(("busy", "warned"), [(0.01, False), (1.5, True)])
def test_busy_machine_causes_warning(
    busy: float, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda: busy)
    assert machine.describe("cpu")["quiet"] is not warned
    assert ("WARNING" in capsys.readouterr().err) is warned
