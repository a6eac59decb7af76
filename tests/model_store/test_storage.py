"""Files of a store in a folder and behind a URL: what is read, what is refused, what survives a fault."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from model_store.errors import CorruptStore, PublishFailed, StoreUnreachable
from model_store.storage import LOCK, PARTIAL, Storage

# Writes "new"; the nth call of a function that changes the disk kills the process, or finds the disk full.
FAULTY = """
import errno, os, signal, sys
from model_store.storage import Storage
storage, call, fault, left = Storage(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
real = getattr(os, call)
def faulty(*arguments, **options):
    global left
    left -= 1
    if left == -1 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if left == -1:
        raise OSError(errno.ENOSPC, "disk full")
    return real(*arguments, **options)
with storage.locked():
    setattr(os, call, faulty)
    storage.write("ears/file", b"new")
"""


def test_files_are_written_listed_and_removed(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "root")
    assert storage.names() == storage.names("ears") == []
    assert storage.read("ears/1") is None
    with storage.locked():
        for data in (b"one", b"two"):
            storage.write("ears/1", data)
        with storage.locked():  # nested
            storage.write("aliases.json", b"{}")
        assert sorted(storage.names()) == [LOCK, "aliases.json", "ears"]
        assert (storage.names("ears"), storage.read("ears/1")) == (["1"], b"two")
        storage.remove("ears/1")
    assert storage.read("ears/1") is None


def test_url_is_read_and_never_published_into(tmp_path: Path) -> None:
    storage = Storage(f"memory://{tmp_path.name}/root")
    assert storage.names() == storage.names("ears") == []
    storage.write("ears/1", b"one")
    storage.write("aliases.json", b"{}")
    assert sorted(storage.names()) == ["aliases.json", "ears"]
    assert storage.names("ears") == ["1"]
    assert (storage.read("ears/1"), storage.read("ears/2")) == (b"one", None)
    with pytest.raises(PublishFailed, match="publish into a folder"), storage.locked():
        pass


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_special_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "odd")
    with pytest.raises(CorruptStore, match=r"^odd: found .* expected a plain file"):
        Storage(tmp_path).read("odd")


def test_large_file_and_plain_root_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(CorruptStore, match="67108865 bytes, expected"):
        Storage(tmp_path).read("large")
    with pytest.raises(PublishFailed, match="it cannot be written"), Storage(tmp_path / "large").locked():
        pass


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("fault", ["killed", "full"])
def test_interrupted_write_leaves_old_or_new(tmp_path: Path, call: str, fault: str) -> None:
    storage = Storage(tmp_path)
    for nth in range(10):
        with storage.locked():  # the lock of a killed process is free
            storage.write("ears/file", b"old")
        assert sorted(storage.names()) == [LOCK, "ears"]
        done = subprocess.run(
            [sys.executable, "-c", FAULTY, tmp_path, call, fault, str(nth)], stderr=subprocess.PIPE
        )
        assert storage.names("ears") == ["file"]
        if done.returncode == 0:
            assert nth > 0
            assert storage.read("ears/file") == b"new"
            return
        # Only the last step, making the name durable, comes after the new content is in place.
        assert storage.read("ears/file") == (
            b"new" if nth > {"open": 1, "fsync": 1, "replace": 9}[call] else b"old"
        )
        if fault == "full":
            assert b"cannot be written (disk full)" in done.stderr
            assert PARTIAL not in storage.names()
    pytest.fail(f"more than ten calls of os.{call}")


def test_held_lock_ends_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process and of a thread alike."""
    holder = (
        "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    )
    storage = Storage(tmp_path)
    monkeypatch.setattr("model_store.storage.LOCK_S", 0.1)
    command = [sys.executable, "-c", holder, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(PublishFailed, match="another program has held its lock"), storage.locked():
            pass
        process.kill()
    refused = []

    def other() -> None:
        try:
            with Storage(tmp_path).locked():
                pass
        except PublishFailed as error:
            refused.append(error)

    with storage.locked():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_missing_driver_is_named() -> None:
    with pytest.raises(ValueError, match=r"^store: .*; use .* prime-anc\[s3\]"):
        Storage("nonsense://bucket/models")


def test_unreachable_storage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(f"memory://{tmp_path.name}/root")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no credentials")

    for call in ("ls", "info", "pipe_file"):
        monkeypatch.setattr(f"fsspec.implementations.memory.MemoryFileSystem.{call}", refuse)
    for attempt in (storage.names, lambda: storage.read("file"), lambda: storage.write("file", b"")):
        with pytest.raises(StoreUnreachable, match="no credentials"):
            attempt()
