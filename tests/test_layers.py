"""The import contracts of pyproject.toml hold."""

import subprocess
import sys
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
