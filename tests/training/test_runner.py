"""The runners: every task's rows from each, also where a worker dies on the way, and nobody left behind."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from tests.training.conftest import command
from tests.training.toy_tasks import die, wait_for_go
from training import run_splits, runner
from training.report import compose
from training.run_folder import read_rows

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
TASKS = ["a", "b", "c"]
ROWS = [(task, [{"task": task}]) for task in TASKS]
needs_ray = pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="the extra `cluster` is not installed")

IN_ANOTHER_PROCESS = """
import json, sys
from functools import partial
from pathlib import Path
from tests.training.toy_tasks import wait_for_go
from training.runner import RUNNERS

if __name__ == "__main__":
    engine, folder, *tasks = sys.argv[1:]
    print(json.dumps(sorted(RUNNERS[engine](partial(wait_for_go, Path(folder)), 2).run(tasks))))
"""


def started(engine: str, folder: Path) -> "subprocess.Popen[str]":
    """A run of the toy tasks that a test may kill."""
    script = folder / "script.py"
    script.write_text(IN_ANOTHER_PROCESS)
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, script, engine, folder, *TASKS],
            stdout=subprocess.PIPE,
            stderr=log,
            env=ENVIRONMENT,
            text=True,
        )


def wait_for(condition: Callable[[], bool], within_s: float = 240) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def worker_of(folder: Path, task: str) -> int:
    """The process that does a task, once one does."""
    wait_for((folder / task).exists)
    return int((folder / task).read_text())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_killed_process_of_the_pool_costs_nothing_but_time(tmp_path, capsys):
    pool = runner.LocalRunner(partial(wait_for_go, tmp_path), 2)
    with ThreadPoolExecutor(1) as beside:
        rows = beside.submit(lambda: sorted(pool.run(TASKS)))
        try:
            os.kill(first := worker_of(tmp_path, "a"), signal.SIGKILL)
        finally:
            (tmp_path / "go").touch()
        assert rows.result() == ROWS
    assert worker_of(tmp_path, "a") != first
    assert "a worker process died" in capsys.readouterr().out


@needs_ray
def test_a_killed_worker_of_the_cluster_costs_nothing_but_time(tmp_path):
    with started("ray", tmp_path) as run:
        try:
            os.kill(first := worker_of(tmp_path, "a"), signal.SIGKILL)
        finally:
            (tmp_path / "go").touch()
        printed, _ = run.communicate(timeout=240)
    assert run.returncode == 0, (tmp_path / "log").read_text()
    assert json.loads(printed.splitlines()[-1]) == [[task, rows] for task, rows in ROWS]
    assert worker_of(tmp_path, "a") != first


def test_workers_that_die_again_and_again_end_the_run(monkeypatch):
    monkeypatch.setattr(runner, "MAX_DEATHS", 2)
    with pytest.raises(runner.WorkerLost, match="worker processes died 2 times; 1 tasks are left"):
        list(runner.LocalRunner(die, 2).run(["a"]))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_workers_end_with_their_parent(tmp_path):
    """A killed run leaves nobody behind who would go on training in OUT beside the run that takes over."""
    with started("local", tmp_path) as run:
        try:
            workers = [worker_of(tmp_path, task) for task in TASKS[:2]]
        finally:
            run.kill()
    try:
        wait_for(lambda: not any(map(is_alive, workers)))
        assert not any(map(is_alive, workers))
    finally:
        (tmp_path / "go").touch()  # so that none is left in any case


def run_here(folder: Path, *options: str) -> pd.DataFrame:
    """The command in this process, without its figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "draw", lambda *given: None)
        assert run_splits.main(command(folder, *options)) == 0
    return cases(folder)


def cases(folder: Path) -> pd.DataFrame:
    rows = read_rows(folder / "out" / "cases.csv").drop(columns=["digest", "commit"], errors="ignore")
    rows = rows[rows.method.isin(["wmmse", "prime-log"])]
    keys = [each for each in ("method", "seed", "profile", "k", "listener", "ear") if each in rows]
    return rows.sort_values(keys).reset_index(drop=True)


@pytest.mark.usefixtures("opened_once")
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=needs_ray)])
def test_workers_give_the_rows_of_one_process(engine, finished, tmp_path):
    options = ("--methods", "wmmse", "--engine", engine, "--workers", "2")
    found = run_here(tmp_path, *options).dropna(axis="columns", how="all")
    alone = cases(finished.folder).query("method == 'wmmse'").reset_index(drop=True)
    assert {"noise_reduction_db", "predicted_noise_reduction_db", "listener"} <= set(found)
    pd.testing.assert_frame_equal(found, alone[found.columns], rtol=1e-6, check_dtype=False)


@pytest.mark.usefixtures("opened_once")
def test_a_group_of_models_ends_as_its_models_alone(finished, tmp_path, capsys):
    """Two seeds as one program against one of them alone: the same figures but for rounding, 60 updates of it."""
    found = run_here(tmp_path, "--seeds", "2", "--group", "2", "--methods", "prime-log")
    assert "prime-log/group-" in capsys.readouterr().out
    assert not list((tmp_path / "out" / "state").glob("**/*.pt"))
    start = found[found.k == 0]
    alone = cases(finished.folder).query("method == 'prime-log' and k == 0").noise_reduction_db.to_numpy()
    assert start[start.seed == 0].noise_reduction_db.to_numpy() == pytest.approx(alone, abs=0.1)
    assert abs(start[start.seed == 1].noise_reduction_db.to_numpy() - alone).max() > 0.01
    # Started again, nothing is trained twice.
    run_here(tmp_path, "--seeds", "2", "--group", "2", "--methods", "prime-log")
    assert "updates, loss" not in capsys.readouterr().out
