"""Files of a store in a folder and behind a URL: what is read, what is refused, what survives a fault."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from model_store.errors import CorruptStore, StoreUnreachable
from model_store.storage import PARTIAL_PREFIX, STALE_AFTER_S, FolderStorage, Storage, storage_at


@pytest.fixture(params=["folder", "url"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = tmp_path / "root"
    return storage_at(root if request.param == "folder" else f"memory://{tmp_path.name}/root")


def test_files_are_written_listed_and_removed(storage: Storage) -> None:
    assert storage.folders() == storage.files("ears") == []
    assert storage.read("ears/1") is None
    storage.write("ears/1", b"one")
    storage.write("ears/1", b"two")
    storage.write("aliases.json", b"{}")
    assert storage.folders() == ["ears"]
    assert storage.files("ears") == ["1"]
    assert storage.read("ears/1") == b"two"
    storage.remove("ears/1")
    assert storage.read("ears/1") is None


@pytest.mark.parametrize(("make", "found"), [(os.mkfifo, "a pipe"), (os.mkdir, "a folder")])
def test_special_file_never_blocks(tmp_path: Path, make: Callable[[Path], object], found: str) -> None:
    make(tmp_path / "odd")
    with pytest.raises(CorruptStore, match=f"odd: found {found}, expected a plain file"):
        FolderStorage(tmp_path).read("odd")


def test_link_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").symlink_to(tmp_path / "elsewhere")
    (root / "folder").symlink_to(tmp_path)
    storage = FolderStorage(root)
    with pytest.raises(CorruptStore, match="file: found something that cannot be opened"):
        storage.read("file")
    with pytest.raises(CorruptStore, match="folder: found a symbolic link, expected a folder"):
        storage.files("folder")
    assert storage.folders() == []
    (tmp_path / "link").symlink_to(root)  # the root itself may be one
    FolderStorage(tmp_path / "link").write("ears/1", b"one")
    assert storage.read("ears/1") == b"one"


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_failed_write_keeps_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Fail the first, second ... such call of a write, until there are no more to fail."""
    storage, real = FolderStorage(tmp_path), getattr(os, call)
    storage.write("file", b"old")
    for nth in range(10):
        calls = 0

        def failing(*arguments: object, nth: int = nth, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == nth + 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            try:
                storage.write("file", b"new")
            except OSError:
                # Only the last step, making the name durable, fails with the new content in place.
                assert storage.read("file") in (b"old", b"new")
                assert os.listdir(tmp_path) == ["file"]
                storage.write("file", b"old")
                continue
        assert nth > 0
        assert storage.read("file") == b"new"
        return
    pytest.fail(f"more than ten calls of os.{call}")


def test_stale_partial_files_are_swept(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    partial = tmp_path / f"{PARTIAL_PREFIX}0"
    partial.touch()
    storage.write("file", b"")
    assert partial.exists()  # its writer may still be at work
    long_ago = time.time() - 2 * STALE_AFTER_S
    os.utime(partial, (long_ago, long_ago))
    storage.write("file", b"")
    assert not partial.exists()


def test_missing_driver_is_named() -> None:
    with pytest.raises(ValueError, match=r"^store: .*; use .* prime-anc\[s3\]"):
        storage_at("nonsense://bucket/models")


def test_unreachable_storage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_at(f"memory://{tmp_path.name}/root")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no credentials")

    for call in ("ls", "info", "pipe_file"):
        monkeypatch.setattr(f"fsspec.implementations.memory.MemoryFileSystem.{call}", refuse)
    for attempt in (storage.folders, lambda: storage.read("file"), lambda: storage.write("file", b"")):
        with pytest.raises(StoreUnreachable, match="no credentials"):
            attempt()
