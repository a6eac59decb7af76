"""Files of a store, in a folder or as objects behind a URL with an fsspec driver.

A file appears whole, by one rename or as one object, and never changes afterwards, except the table of aliases.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_store.errors import CorruptStore, PublishFailed, StoreUnreachable

# About sixty times the bundled model; bounds memory use.
MAX_FILE_BYTES = 64 * 1024 * 1024

PARTIAL_PREFIX = ".partial-"
# Time within which another writer has to end: one that teaches a device takes some seconds.
LOCK_S = 30.0
STALE_AFTER_S = 3600.0  # a write takes a second or two, so the process that left such a file has ended


def storage_at(root: Path | str) -> Storage:
    """Return the storage for a folder or a URL such as ``s3://bucket/models``."""
    return ObjectStorage(str(root)) if is_url(root) else FolderStorage(Path(root))


def is_url(root: Path | str) -> bool:
    """Return whether `root` is a URL of object storage rather than a folder."""
    return "://" in str(root)


class FolderStorage:
    """A folder, created by the first write. The root may be a symbolic link; nothing below it may."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mutex = threading.RLock()
        self._is_locked = False

    def folders(self) -> list[str]:
        """List the folders below the root; empty without a root."""
        if not self._root.is_dir():
            return []
        with os.scandir(self._root) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def files(self, folder: str) -> list[str]:
        """List a folder; empty if it does not exist, CorruptStore if it cannot be read."""
        place = self._root / folder
        try:
            mode = place.lstat().st_mode
            if not stat.S_ISDIR(mode):
                raise CorruptStore(folder, _kind(mode), "a folder")
            return os.listdir(place)
        except (FileNotFoundError, NotADirectoryError):  # the latter if the root is a file
            return []
        except OSError as error:
            reason = f"a folder that cannot be read ({error.strerror})"
            raise CorruptStore(folder, reason, "a readable one") from error

    def read(self, place: str) -> bytes | None:
        """Read a file; None if it does not exist.

        Raises
        ------
        CorruptStore
            It is not a plain file of at most 64 MiB.
        """
        expected = f"a plain file of at most {MAX_FILE_BYTES} bytes"
        try:
            # O_NONBLOCK: opening a pipe must not wait for a writer.
            descriptor = os.open(self._root / place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CorruptStore(place, f"something that cannot be opened ({error.strerror})", expected) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CorruptStore(place, _kind(status.st_mode), expected)
            if status.st_size > MAX_FILE_BYTES:
                raise CorruptStore(place, f"{status.st_size} bytes", expected)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read()
        finally:
            os.close(descriptor)

    def write(self, place: str, data: bytes) -> None:
        """Write a file in one step, replacing an existing one; raises OSError.

        A crash leaves the old or the new state: the data is on disk before the rename, and the name before the return.
        """
        target = self._root / place
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(target.parent.parent)
        self._sweep()
        partial = self._root / f"{PARTIAL_PREFIX}{secrets.token_hex(8)}"
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync(target.parent)

    def remove(self, place: str) -> None:
        """Delete a file."""
        (self._root / place).unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other threads and processes that write; may be nested. PublishFailed if one takes over LOCK_S."""
        given_up = time.monotonic() + LOCK_S
        if not self._mutex.acquire(timeout=LOCK_S):
            raise _occupied()
        try:
            if self._is_locked:
                yield
                return
            self._root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
            try:
                while not _is_taken(descriptor):
                    if time.monotonic() > given_up:
                        raise _occupied()
                    time.sleep(0.02)
                self._is_locked = True
                yield
            finally:
                self._is_locked = False
                os.close(descriptor)  # unlocks
        finally:
            self._mutex.release()

    def _sweep(self) -> None:
        """Remove files left by killed writers."""
        for path in self._root.glob(f"{PARTIAL_PREFIX}*"):
            if time.time() - path.lstat().st_mtime > STALE_AFTER_S:
                path.unlink(missing_ok=True)


class ObjectStorage:
    """Objects behind a URL; a driver's errors are raised as StoreUnreachable, ValueError if there is no driver."""

    def __init__(self, url: str) -> None:
        import fsspec.core  # late: takes a tenth of a second, which a store in a folder saves

        self._fs: Any
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            remedy = "use s3://, gs:// or az:// with prime-anc[s3], [gcs] or [azure] installed"
            raise ValueError(f"store: {error}; {remedy}") from error

    def folders(self) -> list[str]:
        """List folders as `FolderStorage.folders`."""
        return [_last(item["name"]) for item in self._listed("") if item["type"] == "directory"]

    def files(self, folder: str) -> list[str]:
        """List files as `FolderStorage.files`."""
        return [_last(item["name"]) for item in self._listed(f"/{folder}")]

    def read(self, place: str) -> bytes | None:
        """Read as `FolderStorage.read`."""
        with _reachable():
            try:
                size = self._fs.info(f"{self._root}/{place}")["size"]
                if size > MAX_FILE_BYTES:
                    raise CorruptStore(place, f"{size} bytes", f"at most {MAX_FILE_BYTES} bytes")
                data: bytes = self._fs.cat_file(f"{self._root}/{place}")
            except FileNotFoundError:
                return None
            return data

    def write(self, place: str, data: bytes) -> None:
        """Write as `FolderStorage.write`."""
        with _reachable():
            self._fs.makedirs(f"{self._root}/{place}".rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(f"{self._root}/{place}", data)

    def remove(self, place: str) -> None:
        """Delete as `FolderStorage.remove`."""
        with _reachable():
            self._fs.rm_file(f"{self._root}/{place}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: object storage has no lock."""
        yield

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        with _reachable():
            self._fs.invalidate_cache()
            try:
                listed: list[dict[str, Any]] = self._fs.ls(self._root + folder, detail=True)
            except FileNotFoundError:
                return []
            return listed


# File access of a store.
Storage = FolderStorage | ObjectStorage


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, CorruptStore):
        raise
    except Exception as error:  # drivers raise errors of various types
        raise StoreUnreachable(
            f"store: object storage does not answer ({type(error).__name__}: {error})"
        ) from error


def _is_taken(descriptor: int) -> bool:
    """Take the lock of a folder, if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _occupied() -> PublishFailed:
    return PublishFailed(f"store: another program has held its lock for {LOCK_S:g} s; end it, then repeat")


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _sync(folder: Path) -> None:
    """Make the names in a folder as durable as the files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISFIFO, "a pipe"),
    )
    return next((words for test, words in kinds if test(mode)), "a special file")
