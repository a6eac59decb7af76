"""Atomic writes: a crash leaves either the old state or the new one.

The order matters: write beside the target, fsync what was written, rename over the target (one step for
every reader), fsync the folder so that the new name survives a power cut as well.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL_PREFIX = ".partial-"
"""Names of unfinished files and folders begin like this: no model can be called so."""

STALE_AFTER_S = 3600.0
"""A publish takes a second or two, so an hour-old partial entry belongs to a process that is gone."""


def write_new(file: Path, data: bytes) -> None:
    """Create `file` with `data` and fsync it; FileExistsError if there is something of that name.

    The file is read-only (0444 less the umask): what is published is not edited.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that the names in it are as durable as the files behind them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(file: Path, data: bytes) -> None:
    """Put `data` at `file` in one step; on failure the old content stays and nothing is left beside it."""
    partial = _partial_name(file.parent)
    try:
        write_new(partial, data)
        os.replace(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(file.parent)


@contextmanager
def partial_folder(parent: Path) -> Iterator[Path]:
    """A new folder inside `parent`, for the caller to fill and rename; whatever is left of it is removed.

    It is made under the umask, not by `tempfile`, whose folders nobody but their owner could read once renamed.
    """
    folder = _partial_name(parent)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path, now_s: float | None = None) -> None:
    """Remove partial files and folders directly in `parent` that a killed process left over an hour ago."""
    now_s = time.time() if now_s is None else now_s
    for entry in os.scandir(parent):
        if not entry.name.startswith(PARTIAL_PREFIX):
            continue
        try:
            is_stale = now_s - entry.stat(follow_symlinks=False).st_mtime > STALE_AFTER_S
        except FileNotFoundError:  # its owner has just finished
            continue
        if is_stale and entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif is_stale:
            Path(entry.path).unlink(missing_ok=True)


def _partial_name(parent: Path) -> Path:
    return parent / f"{PARTIAL_PREFIX}{secrets.token_hex(8)}"
