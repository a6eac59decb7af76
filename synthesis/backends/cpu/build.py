"""Compiles the core: once for each level of the x86-64 architecture, or once for 64-bit Arm.

Run when the package is set up (setup.py), with the clang that the PyPI package `ziglang` brings, so that no
compiler has to be installed. The processor's own level is chosen when the core is loaded (`library`), so that one
installation serves every machine of an architecture, and rounds alike on those of one level. A file's name holds
the digest of sources and flags, so that a core of others is never loaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = FOLDER / "core"

# By machine, the best first. v4 has AVX-512, v3 has AVX2 and fused multiply-add.
LEVELS = {"x86_64": ("x86_64_v4", "x86_64_v3", "x86_64_v2"), "aarch64": ("generic",)}

FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-fno-sanitize=all"),
    # Fused multiply-add is welcome; to take sums and products in another order is not: it would square what the
    # source keeps within single precision.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)


def machine() -> str:
    """The architecture's name as in LEVELS."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def library_file(level: str) -> Path:
    """Where the core for a level lies."""
    sources = [each.read_bytes() for each in sorted(SOURCES.glob("*.[ch]"))]
    digest = hashlib.sha256(b"".join(sources) + " ".join(FLAGS).encode())
    return FOLDER / f"core-{machine()}-{level}-{digest.hexdigest()[:12]}.so"


def compile_core() -> list[Path]:
    """Compile for every level of this architecture what is not there yet; returns the files.

    Raises RuntimeError for an architecture that is not supported, where there is no compiler, and with the
    compiler's words where it fails.
    """
    if machine() not in LEVELS:
        raise RuntimeError(f"no core for the architecture {machine()!r}; supported: {', '.join(LEVELS)}")
    files = []
    for level in LEVELS[machine()]:
        file = library_file(level)
        files.append(file)
        if file.is_file():
            continue
        print(f"compiling the core for {machine()}, {level} ...", file=sys.stderr, flush=True)
        partial = file.with_suffix(f".{os.getpid()}")
        compiler = _compiler()
        command = [
            *compiler,
            *FLAGS,
            *_level_flags(compiler, level),
            "-o",
            str(partial),
            str(SOURCES / "core.c"),
            "-lm",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the core does not compile:\n{done.stderr}")
        for outdated in FOLDER.glob(f"core-{machine()}-{level}-*.so"):
            outdated.unlink()
        partial.replace(file)
    return files


def _compiler() -> list[str]:
    """`ziglang`'s clang where it is installed, else clang on the PATH."""
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    if clang := shutil.which("clang"):
        return [clang]
    raise RuntimeError("no compiler for the changed core; run make serve again, or pip install ziglang")


def _level_flags(compiler: list[str], level: str) -> list[str]:
    if level == "generic":
        return []
    if "ziglang" in compiler:  # an old glibc, so that the file runs on every current distribution
        return ["-target", "x86_64-linux-gnu.2.17", f"-mcpu={level}"]
    return [f"-march={level.replace('_v', '-v').replace('x86_64', 'x86-64')}"]


if __name__ == "__main__":
    compile_core()
