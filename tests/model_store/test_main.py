import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_store import Checkpoint, ModelStore
from model_store import store as store_module
from model_store.__main__ import main
from tests.model_store import cases


@pytest.fixture(autouse=True)
def _nothing_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BUNDLED_ROOT", tmp_path / "nothing")


def run(capsys: pytest.CaptureFixture[str], store: ModelStore, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, lines printed, text on standard error."""
    code = main(["--store", str(store.root), *arguments])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_list_is_table_with_scores(
    store: ModelStore, checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"k=0": {"noise_reduction_db": 21.0}}
    as_compared = {"prime-log": {"noise_reduction_db": 22.0}, "wmmse": {"noise_reduction_db": 20.0}}
    split_models = {"a": table, "b": as_compared}
    checkpoint = cases.checkpoint()
    checkpoint.manifest = cases.manifest(split=None, scores={"split_models": split_models, "in_support": table})
    store.publish("all", checkpoint)
    store.publish("everybody", cases.controller())
    store.set_alias("best", "ears")
    code, lines, errors = run(capsys, store, "list")
    assert (code, errors) == (0, "")
    assert lines[0].split()[:5] == ["model", "generator", "dataset", "split", "seed"]
    assert lines[1].startswith("all@1   prime-log  simulated  all    1")
    assert "k=0 21.50 (of 2 split models)" in lines[1]
    assert "k=0 21.50 k=1 22.75" in lines[2]
    assert store.resolve("ears").digest[:19] in lines[2]
    assert lines[4].split()[:5] == ["everybody@1", "1", "96000", "10", "simulated"]
    assert lines[5] == "best -> ears"


def test_verify_looks_at_every_version(
    store: ModelStore, checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    published = [store.root / store.publish("ears", checkpoint).file for _ in range(3)]
    for file in published[:2]:
        file.chmod(0o644)
        file.write_bytes(b"")
    code, lines, errors = run(capsys, store, "verify")
    assert code == 1
    assert [line.split(":")[0] for line in lines] == ["ears@1", "ears@4"]
    assert "golden case to" in lines[0]
    assert f"ears@2: ears/{published[0].name}: found sha256:" in errors
    assert f"ears@3: ears/{published[1].name}: found sha256:" in errors
    assert run(capsys, store, "verify", "ears@1")[0] == 0


def test_alias_sets_shows_and_removes(store: ModelStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, store, "alias", "best", "ears") == (0, ["best -> ears, now ears@1"], "")
    assert run(capsys, store, "alias", "first", "ears@1")[0] == 0
    assert run(capsys, store, "alias")[1] == ["best -> ears", "first -> ears@1"]
    assert run(capsys, store, "alias", "first")[1] == ["first -> ears@1"]
    assert run(capsys, store, "alias", "best", "--remove")[0] == 0
    assert store.aliases() == {"first": "ears@1"}


@pytest.mark.parametrize(
    "command",
    [
        ("show", "none"),
        ("show", "../x"),
        ("verify", "ears@9"),
        ("verify", "A"),
        ("alias", "ears", "ears@1"),
        ("alias", "x", "y"),
    ],
)
def test_failure_is_one_line_and_exit_code_1(
    store: ModelStore, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    code, lines, errors = run(capsys, store, *command)
    assert (code, lines) == (1, [])
    assert errors.startswith("model_store: ")
    assert errors.count("\n") == 1


def test_environment_names_store_which_must_exist(tmp_path: Path) -> None:
    """A mistyped store is not sound."""
    command = [sys.executable, "-m", "model_store", "verify"]
    environment = os.environ | {"PRIME_STORE": str(tmp_path / "mistyped")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "mistyped" in done.stderr
