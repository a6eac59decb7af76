"""The core under the address and undefined-behaviour sanitizers, on ordinary and hostile designs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prime_anc.core.build import SOURCES

ROOT = Path(__file__).parents[2]
N_DESIGNS = 12
ZIG = [sys.executable, "-m", "ziglang"]
# The flags in one option would leave the first sanitizer out. Optimised code takes ten times as long to compile.
FLAGS = (
    *("-std=gnu11", "-O0", "-gline-tables-only", "-fPIC", "-c", "-fvisibility=hidden"),
    *("-fsanitize=address", "-fsanitize=undefined"),
)
LIBRARIES = ("libasan.so.*", "libubsan.so.*")


def run(*command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def sanitised() -> dict[str, str]:
    """The environment in which a program runs with the sanitizers' libraries: GCC's, which `ziglang` lacks."""
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("no compiler: ziglang is not installed")
    folders = [Path(item).parent / "lib" for item in os.get_exec_path()]
    found = [[path for folder in folders for path in sorted(folder.glob(f"*/{name}"))] for name in LIBRARIES]
    if not all(found):
        pytest.skip("libasan or libubsan is missing: install libasan8 and libubsan1, or run make programs")
    environment = {
        "LD_PRELOAD": " ".join(str(files[0]) for files in found),
        "PYTHONMALLOC": "malloc",  # so that each object of Python has its own bounds
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    if (trial := run(sys.executable, "-c", "", **environment)).returncode:
        pytest.skip(f"the sanitizers do not run on this system: {trial.stderr[:200]}")
    return environment


def test_core_passes_sanitizers(sanitised: dict[str, str], tmp_path: Path) -> None:
    compiled, library = tmp_path / "core.o", tmp_path / "core.so"
    for command in (
        [*ZIG, "cc", *FLAGS, "-o", compiled, SOURCES / "core.c"],
        [*ZIG, "ld.lld", "-shared", "-o", library, compiled],
    ):
        made = run(*command)
        assert made.returncode == 0, made.stderr
    symbols = compiled.read_bytes()
    assert b"__asan_report_load" in symbols
    assert b"__ubsan_handle" in symbols
    hostile = "tests.core.hostile"
    designed = run(sys.executable, "-m", hostile, library, str(N_DESIGNS), **sanitised)
    assert designed.returncode == 0, designed.stderr[:5000]
