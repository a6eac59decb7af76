"""The walls between the packages: who may import whom, and that the numerics reach nothing outside."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = ROOT / "pyproject.toml"
PACKAGES = ("synthesis", "model_store", "service", "training", "benchmarks", "prime_anc_client")
SYNTHESIS = sorted((ROOT / "synthesis").rglob("*.py"))

# Calls that reach a file without an import that the contract forbids.
READING_CALLS = {"open", "__import__", "exec", "eval"}
READING_METHODS = {
    "torch": {"load", "save", "from_file"},
    "np": {"load", "save", "savez", "fromfile", "loadtxt", "savetxt", "memmap"},
    "numpy": {"load", "save", "savez", "fromfile", "loadtxt", "savetxt", "memmap"},
}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the project's contracts on the packages found in `folder`, in a process of its own.

    A process of its own because the import graph is built from `sys.path`, which a test must not alter.
    """
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from importlinter.cli import lint_imports;"
        "sys.exit(lint_imports(config_filename=sys.argv[2], no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(folder), str(CONTRACTS)], cwd=folder, capture_output=True, text=True
    )


def test_no_import_crosses_a_wall() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("synthesis", "import model_store"),
        ("synthesis", "import time"),
        ("model_store", "import service"),
        ("service", "import training"),
        ("training", "import service"),
        ("training", "import fastapi"),
        ("prime_anc_client", "import service"),
        ("prime_anc_client", "import torch"),
        ("service", "import benchmarks"),
        ("training", "import benchmarks"),
        ("service.engine.resident", "import service.formats.answers"),
        ("service.formats.schemas", "import service.engine.engine"),
        ("service.calibration.takes", "import service.observability.metrics"),
        ("service.admission.quotas", "import service.http.context"),
        ("service.designs", "import service.errors"),
        ("service.http.endpoints", "import service.app"),
    ],
)
def test_the_contracts_notice_a_crossing(tmp_path: Path, module: str, line: str) -> None:
    """On an empty twin of every module, of which one has that line."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            twin = tmp_path / file.relative_to(ROOT)
            twin.parent.mkdir(parents=True, exist_ok=True)
            twin.touch()
    assert lint_imports(tmp_path).returncode == 0
    place = tmp_path.joinpath(*module.split("."))
    (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).write_text(f"{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert "BROKEN" in done.stdout


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


@pytest.mark.parametrize("file", SYNTHESIS, ids=lambda file: file.name)
def test_synthesis_opens_no_file(file: Path) -> None:
    assert reading_calls(file.read_text(encoding="utf-8")) == []


def test_an_opened_file_is_noticed() -> None:
    assert reading_calls("import torch\ntorch.load('x')\nopen('y')\n") == ["2: torch.load", "3: open"]
