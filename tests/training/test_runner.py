"""The runners: the same rows from each, also where a worker dies on the way, and nobody left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from tests.training.conftest import SCRIPT, command
from training import run_splits, runner
from training.report import compose
from training.run_folder import read_rows
from training.tasks import Task

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}

# Two stages, two tasks and then one, whose longest is a training of a few seconds.
TWO_STAGES = ("--methods", "wmmse,prime-log")

NO_FIGURES = """
import sys
from training import run_splits
from training.report import compose

if __name__ == "__main__":
    compose.draw = lambda *given: None
    sys.exit(run_splits.main(sys.argv[1:]))
"""


def run_here(folder: Path, *options: str) -> pd.DataFrame:
    """The command in this process, without its figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "draw", lambda *given: None)
        assert run_splits.main(command(folder, *options)) == 0
    return cases(folder)


def cases(folder: Path) -> pd.DataFrame:
    rows = read_rows(folder / "out" / "cases.csv").drop(columns=["digest", "commit"])
    rows = rows[rows.method.isin(["wmmse", "prime-log"])]
    return rows.sort_values(["method", "seed", "profile", "k", "listener", "ear"]).reset_index(drop=True)


def children(pid: int) -> list[int]:
    """Processes started by a process and by those, and so on."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listed.splitlines()}
    found, fresh = [], [pid]
    while fresh:
        fresh = [child for child, parent in parents.items() if parent in fresh]
        found += fresh
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill_a_worker(pid: int, worker: str, others: Collection[int] = (), within_s: float = 240) -> bool:
    """Kill the first of a process's workers as soon as there is one that is none of `others`; whether there was."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for victim in (each for each in children(pid) if each not in others and worker in command_line(each)):
            os.kill(victim, signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("opened_once")
def test_a_killed_process_of_the_pool_costs_nothing_but_time(finished, tmp_path, capsys):
    earlier = children(os.getpid())  # workers that another test of this process has left to its pool
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill_a_worker, os.getpid(), "spawn_main", earlier)
        found = run_here(tmp_path, *TWO_STAGES, "--workers", "2")
        assert killed.result()
    assert "a worker process died" in capsys.readouterr().out
    pd.testing.assert_frame_equal(found, cases(finished.folder), rtol=1e-6, check_like=True)


@pytest.mark.timeout(900)
def test_a_killed_worker_of_the_cluster_costs_nothing_but_time(finished, tmp_path):
    pytest.importorskip("ray", reason="the optional extra `cluster` is not installed")
    options = command(tmp_path, *TWO_STAGES, "--engine", "ray", "--workers", "2")
    log = tmp_path / "log"
    with (
        log.open("w") as stream,
        subprocess.Popen(
            [sys.executable, "-c", NO_FIGURES, *options], stdout=stream, stderr=stream, env=ENVIRONMENT
        ) as run,
    ):
        assert kill_a_worker(run.pid, "ray::run_task"), log.read_text()
        assert run.wait(timeout=480) == 0, log.read_text()
    pd.testing.assert_frame_equal(cases(tmp_path), cases(finished.folder), rtol=1e-6, check_like=True)


def die(options: object, task: Task) -> None:
    os._exit(1)


def test_workers_that_die_again_and_again_end_the_run(monkeypatch):
    monkeypatch.setattr(runner, "run_task", die)
    monkeypatch.setattr(runner, "MAX_DEATHS", 2)
    with pytest.raises(runner.WorkerLost, match="worker processes died 2 times; 1 tasks are left"):
        list(runner.LocalRunner(None, 2).run([Task("wmmse", listener="a")]))


SLEEPERS = """
import os, sys, time
from pathlib import Path
from training import runner

def sleep(folder, task):
    Path(folder, task).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    runner.run_task = sleep
    list(runner.LocalRunner(sys.argv[1], 2).run(["a", "b"]))
"""
"""A run whose two tasks say which process does them."""


@pytest.mark.timeout(900)
def test_workers_end_with_their_parent(tmp_path):
    """A killed run leaves nobody behind who would go on training in OUT beside the run that takes over."""
    script, files = tmp_path / "sleepers.py", [tmp_path / "a", tmp_path / "b"]
    script.write_text(SLEEPERS)
    with subprocess.Popen([sys.executable, script, tmp_path], env=ENVIRONMENT) as run:
        deadline = time.monotonic() + 240
        while not all(file.exists() and file.read_text() for file in files) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(run.pid, signal.SIGKILL)
    workers = [int(file.read_text()) for file in files]
    deadline = time.monotonic() + 30
    while any(map(command_line, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [each for each in workers if command_line(each)]
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert not left


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
