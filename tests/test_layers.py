"""The import contracts of pyproject.toml hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = ROOT / "pyproject.toml"


def lint_imports(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Check the contracts on the packages in `folder`; in a process, because the import graph follows sys.path."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from importlinter.cli import lint_imports;"
        "sys.exit(lint_imports(config_filename=sys.argv[2], no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(folder), str(CONTRACTS)], cwd=folder, capture_output=True, text=True
    )


def test_no_import_crosses_layer() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_holds_every_data_file() -> None:
    patterns = tomllib.loads(CONTRACTS.read_text())["tool"]["setuptools"]["package-data"]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    data = [Path(file) for file in listed.stdout.splitlines() if not file.endswith((".py", ".md"))]
    held = {file for package, globs in patterns.items() for item in globs for file in (ROOT / package).glob(item)}
    assert [file for file in data if ROOT / file not in held] == []
