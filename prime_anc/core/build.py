"""Compile the core: per level of the x86-64 architecture, or once for 64-bit Arm.

It runs at installation (setup.py), with the clang of the PyPI package `ziglang`, so that no compiler needs to be
installed. The processor's level is chosen when the core is loaded (`library`), so that one installation serves all
machines of an architecture, and rounds alike on those of one level. A file's name has the digest of sources and flags,
so that an outdated core is never loaded.
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
SOURCES = FOLDER / "c"

# By machine, the best first. v4 has AVX-512, v3 has AVX2 and fused multiply-add.
LEVELS = {"x86_64": ("x86_64_v4", "x86_64_v3", "x86_64_v2"), "aarch64": ("generic",)}

FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-fno-sanitize=all"),
    # Fused multiply-add is allowed, reordering of sums and products is not: it would square values that the source
    # keeps within single precision.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)


def machine() -> str:
    """Return the architecture's name as in LEVELS."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def library_file(level: str) -> Path:
    """Return the file of the core for a level."""
    sources = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
    digest = hashlib.sha256(b"".join(sources) + " ".join(FLAGS).encode())
    return FOLDER / f"core-{machine()}-{level}-{digest.hexdigest()[:12]}.so"


def compile_core() -> list[Path]:
    """Compile the missing levels of this architecture, and return the files.

    Raises
    ------
    RuntimeError
        The architecture is not supported, there is no compiler, or it fails.
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
    """Return the command of `ziglang`'s clang if installed, else of clang on the PATH."""
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
