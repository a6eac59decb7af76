"""The command ``python -m model_store``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from model_store import store as store_module
from model_store.__main__ import main
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore


@pytest.fixture(autouse=True)
def _nothing_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BUNDLED_ROOT", tmp_path / "nothing")


def run(store: ModelStore, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, lines printed, text on standard error."""
    done = CliRunner().invoke(main, ["--store", str(store.root), *arguments])
    return done.exit_code, done.stdout.splitlines(), done.stderr


def test_verify_looks_at_every_version(store: ModelStore, checkpoint: Checkpoint) -> None:
    damaged = [store.root / store.publish("ears", checkpoint).file for _ in range(3)][:2]
    for file in damaged:
        file.chmod(0o644)
        file.write_bytes(b"")
    (store.root / "aliases.json").write_bytes(b"")
    code, lines, errors = run(store, "verify")
    assert code == 1
    assert [line.split(":")[0] for line in lines] == ["ears@1", "ears@4"]
    assert "golden case: taps to" in lines[0]
    for n, file in enumerate(damaged, start=2):
        assert f"ears@{n}: ears/{file.name}: found sha256:" in errors
    assert "aliases.json: found no table" in errors
    assert run(store, "verify", "ears@1")[0] == 0
    assert run(store, "verify", "ears@2")[0] == 1


def test_alias_sets_shows_and_removes(store: ModelStore) -> None:
    assert run(store, "alias", "best", "ears") == (0, ["best -> ears, now ears@1"], "")
    assert run(store, "alias", "first", "ears@1")[0] == 0
    assert run(store, "alias")[1] == ["best -> ears", "first -> ears@1"]
    assert run(store, "alias", "best", "--remove")[0] == 0
    assert store.aliases() == {"first": "ears@1"}


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "none"),
        ("verify", "../x\x1b[2J"),
        ("alias", "ears", "ears@1"),
    ],
)
def test_failure_is_one_line_and_exit_code_1(store: ModelStore, command: tuple[str, ...]) -> None:
    code, lines, errors = run(store, *command)
    assert (code, lines) == (1, [])
    assert errors.startswith("model_store: ")
    assert errors.count("\n") == 1
    assert errors.strip().isprintable()


def test_environment_names_store_which_must_exist(tmp_path: Path) -> None:
    """A mistyped store is not sound."""
    command = [sys.executable, "-m", "model_store", "verify"]
    environment = os.environ | {"PRIME_STORE": str(tmp_path / "mistyped")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "mistyped" in done.stderr
