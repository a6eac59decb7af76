"""The engines: the same rows from each, and from one that lost a worker on the way."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from training import run_splits
from training.report import compose
from training.run_folder import read_rows

pytestmark = pytest.mark.usefixtures("opened_once")

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


def command(folder: Path, *options: str) -> list[str]:
    """A run of two stages, two pieces and then one, whose longest piece is a training of a few seconds."""
    return [
        "--dataset", "simulated", "--quick", "--methods", "wmmse,prime-log", "--updates", "30", "--support", "2",
        "--store", str(folder / "store"), "--out", str(folder / "out"), *options,
    ]  # fmt: skip


UNDRAWN = """
import sys
from training import run_splits
from training.report import compose

if __name__ == "__main__":
    compose.draw = lambda *given: None
    sys.exit(run_splits.main(sys.argv[1:]))
"""
"""The command but for its figures, which are drawn of the rows, whoever made those."""


def run_here(folder: Path, *options: str) -> pd.DataFrame:
    """The same in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "draw", lambda *given: None)
        assert run_splits.main(command(folder, *options)) == 0
    return cases(folder)


def cases(folder: Path) -> pd.DataFrame:
    rows = read_rows(folder / "out" / "cases.csv").drop(columns="digest")
    return rows.sort_values(["method", "profile", "k", "listener", "ear"]).reset_index(drop=True)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory, opened_once: None) -> pd.DataFrame:
    return run_here(tmp_path_factory.mktemp("one"))


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


def kill_a_worker(pid: int, worker: str, within_s: float = 240) -> bool:
    """Kill the first of a process's workers as soon as there is one; whether there was."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for victim in (each for each in children(pid) if worker in command_line(each)):
            os.kill(victim, signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False


@pytest.mark.timeout(900)
def test_a_killed_process_of_the_pool_costs_nothing_but_time(
    one_process: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill_a_worker, os.getpid(), "spawn_main")
        found = run_here(tmp_path, "--engine", "local", "--workers", "2")
        assert killed.result()
    assert "a worker process died" in capsys.readouterr().out
    pd.testing.assert_frame_equal(found, one_process, rtol=1e-6)


@pytest.mark.timeout(900)
def test_a_killed_worker_of_the_cluster_costs_nothing_but_time(one_process: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the optional extra `cluster` is not installed")
    arguments = [sys.executable, "-c", UNDRAWN, *command(tmp_path, "--engine", "ray", "--workers", "2")]
    log = tmp_path / "log"
    with log.open("w") as stream, subprocess.Popen(arguments, stdout=stream, stderr=stream, env=ENVIRONMENT) as run:
        assert kill_a_worker(run.pid, "ray::run_piece"), log.read_text()
        assert run.wait(timeout=480) == 0, log.read_text()
    pd.testing.assert_frame_equal(cases(tmp_path), one_process, rtol=1e-6)


def test_a_cluster_that_loses_a_worker_again_and_again_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = pytest.importorskip("ray", reason="the optional extra `cluster` is not installed")

    class Work:
        def remote(self, *arguments: object) -> object:
            return object()

    def crashed(reference: object) -> None:
        raise cluster.exceptions.WorkerCrashedError

    monkeypatch.setattr(cluster, "is_initialized", lambda: True)
    monkeypatch.setattr(cluster, "remote", lambda **options: lambda function: Work())
    monkeypatch.setattr(cluster, "wait", lambda references, num_returns: (references[:1], references[1:]))
    monkeypatch.setattr(cluster, "get", crashed)
    assert run_splits.main(command(tmp_path, "--engine", "ray")) == 2
    error = capsys.readouterr().err
    assert error.startswith("run_splits: engine: The worker died unexpectedly")
    assert "pieces are left" in error
    assert error.count("\n") == 1


SLEEPERS = """
import os, sys, time
from pathlib import Path
from training import engines

def sleep(folder, piece):
    Path(folder, piece).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    engines.run_piece = sleep
    list(engines.local(sys.argv[1], ["a", "b"], 2))
"""
"""A run whose two pieces of work say which process is at them."""


@pytest.mark.timeout(900)
def test_workers_end_with_their_parent(tmp_path: Path) -> None:
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


def test_a_group_of_models_ends_as_its_models_alone(one_process: pd.DataFrame, tmp_path: Path) -> None:
    """Two seeds as one program against one of them alone: the same figures but for rounding, 30 updates of it."""
    found = run_here(tmp_path, "--seeds", "2", "--group", "2", "--methods", "prime-log")
    assert set(found[found.method == "prime-log"].seed) == {0, 1}
    alone = one_process[(one_process.method == "prime-log") & (one_process.k == 0)]
    together = found[(found.method == "prime-log") & (found.k == 0) & (found.seed == 0)]
    assert together.noise_reduction_db.to_numpy() == pytest.approx(alone.noise_reduction_db.to_numpy(), abs=0.1)
    other = found[(found.method == "prime-log") & (found.k == 0) & (found.seed == 1)]
    assert abs(other.noise_reduction_db.to_numpy() - alone.noise_reduction_db.to_numpy()).max() > 0.01
