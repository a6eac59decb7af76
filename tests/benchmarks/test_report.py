"""`python -m benchmarks report`: every kind of result in the table, pictures beside it, doubts said."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.__main__ import main

MACHINE = {
    "created": "2026-01-02T03:04:05+00:00",
    "device": "A Processor (R) 9000",
    "commit": "abc",
    "torch": "2",
    "cores": 2,
    "n_threads": 1,
    "quiet": True,
}
TIMES = {"p50": 1.5, "p99": 2.25, "n": 3}


def write_all(out: Path | None, quiet: bool = True, measured: bool = True) -> Path:
    machine, data = MACHINE | {"quiet": quiet}, {"measured": measured}
    quality = {"noise_reduction_db": 22.5, "worst_ear_db": 17.0, "amplification_db": 0.01}
    own = {
        "designer": "k=1",
        "batch": 1,
        "core_ms": TIMES,
        "core_over_yardstick": 1.0,
        "designs_per_s": 666.0,
        "stages_ms": {"generate": TIMES},
        "quality": quality,
    }
    step: dict[str, Any] = {
        "service_ms": 1.0,
        "service_residual": 0.05,
        "paper_ms": 9.0,
        "paper_iterations": 16,
        "equal_residual_ms": 30.0,
        "equal_residual_iterations": 64,
        "equal_residual_reached": True,
        "service_over_equal_residual": 0.033,
    }
    alone = {"designer": "solve_toeplitz", "batch": 1, "core_ms": TIMES, "stages_ms": {"solve": TIMES}}
    ratio = {"batch": 1, "in_turns": 0.59, "alone": 0.44}
    more: dict[str, Any] = {"data": data, "alone": [alone], "yardstick_over_solver": [ratio]}
    file = results.write(out, "core", machine, {}, [own], gauss_newton_step=step, **more)
    http = {
        "request": "binary",
        "request_bytes": 41_000,
        "k": 1,
        "loop": "open",
        "answers_per_s": 10.0,
        "failed": [],
    }
    times = dict.fromkeys(("latency_ms", "over_core_and_decode_ms", "over_server_ms"), TIMES)
    results.write(out, "http", machine, {}, [http | times], data=data)
    start = {"p50_s": 2.25, "max_s": 2.5, "n": 2, "each_s": [2.0, 2.5]}
    results.write(out, "start", machine, {}, [start])
    train = {"generator": "prime-log", "group": 1, "updates_per_s": 8.0, "seconds_per_model": 125.0}
    results.write(out, "train", machine, {}, [train | {"extrapolated": True, "prepare_s": 3.0}], data=data)
    adaptive = {"method": "fxlms", "ear": "a/left", "samples_per_s": 1e6, "times_real_time": 20.8}
    ended = {"adapted_s": 90.0, "noise_reduction_db": 20.0, "stopped": "cap"}
    results.write(out, "adaptive", machine, {}, [adaptive | ended], data=data)
    scaling = [
        {"axis": "taps", "by": "reference", "what": "one update", "value": n, "ms": TIMES} for n in (512, 8192)
    ]
    results.write(out, "scaling", machine, {}, scaling, data=data)
    traced = {"batch": 1, "k": 1, "stage": "refine", "operators": 918, "megabytes": 51.5}
    results.write(out, "trace", machine, {}, [traced], data=data, kernels=[])
    bound = {"stage": "refine", "k": 1, "transforms": {"4096": 34}, "transforms_ms": 0.2, "products": 19}
    bound |= {"products_ms": 0.02, "calls": 278, "calls_ms": 0.3, "sum_ms": 0.52, "measured_ms": TIMES}
    results.write(out, "bound", machine, {}, [bound | {"sum_over_measured": 0.35}], data=data)
    soak = {"statuses": {"200": 3}, "drift": 0.0012, "resident_bytes": [[1, 100_000_000], [2, 100_120_000]]}
    results.write(out, "soak", machine, {}, [soak | {"held": True, "seconds": 90.0}])
    return file.parent


def test_a_folder_is_named_after_date_and_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_all(None) == results.RESULTS_ROOT / "2026-01-02-a-processor-r-9000"
    assert main(["report"]) == 0
    text = (results.RESULTS_ROOT / "report.md").read_text()
    for shown in (
        "| k=1 | 1 | 1.5 / 2.25 |",
        "22.50",
        "binary (41 kB)",
        "extrapolated",
        "918",
        "a ratio of 0.033",
        "| 2 | 2.25 | 2.5 | 2 |",
        "0.59 in turns, 0.44 alone",
        "| refine | 1 | 34: 0.2 | 19: 0.02 | 278: 0.3 | 0.52 | 1.5 / 2.25 | 0.35 |",
    ):
        assert shown in text
    assert "## 2026-01-02-a-processor-r-9000: 2026-01-02, A Processor (R) 9000" in text  # a day may have several
    assert "not quiet" not in text
    assert "Simulated" not in text
    assert "Held, 1.5 minutes." in text
    assert "| `statuses.200` | 3 |" in text
    for picture in ("core", "scaling", "soak"):
        drawn = results.RESULTS_ROOT / "2026-01-02-a-processor-r-9000" / f"{picture}.png"
        assert drawn.read_bytes().startswith(b"\x89PNG")
        assert f"2026-01-02-a-processor-r-9000/{picture}.png" in text


def test_doubts_are_said(tmp_path: Path) -> None:
    write_all(tmp_path, quiet=False, measured=False)
    assert main(["report", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "not quiet during adaptive, bound, core" in text
    assert "Simulated ears: adaptive, bound, core" in text


def test_nothing_to_report_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--out", str(tmp_path)]) == 2
    assert "found no results" in capsys.readouterr().err
