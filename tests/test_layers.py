"""The import contracts of pyproject.toml hold and detect violations; synthesis opens no file."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = ROOT / "pyproject.toml"
LOADS_LIBRARY = ROOT / "synthesis" / "backends" / "cpu"
SYNTHESIS = sorted(file for file in (ROOT / "synthesis").rglob("*.py") if LOADS_LIBRARY not in file.parents)

# Calls that reach a file without an import that the contract forbids.
READING_CALLS = {"open", "__import__", "exec", "eval"}
READING_METHODS = {
    "torch": {"load", "save", "from_file"},
    "np": {"load", "save", "savez", "fromfile", "loadtxt", "savetxt", "memmap"},
    "numpy": {"load", "save", "savez", "fromfile", "loadtxt", "savetxt", "memmap"},
}


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


def reading_calls(source: str) -> list[str]:
    """Calls in `source` that open a file or run text as code, as 'line: name'."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in READING_CALLS:
            found.append(f"{node.lineno}: {called.id}")
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            module = called.value.id
            if called.attr in READING_METHODS.get(module, ()):
                found.append(f"{node.lineno}: {module}.{called.attr}")
    return found


def test_synthesis_opens_no_file() -> None:
    found = {str(file.relative_to(ROOT)): reading_calls(file.read_text(encoding="utf-8")) for file in SYNTHESIS}
    assert {file: calls for file, calls in found.items() if calls} == {}
