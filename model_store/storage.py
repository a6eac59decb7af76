"""Files of a store, in a folder or behind a URL, read through fsspec.

A folder is written under one lock. A file appears whole, by one rename, and never changes afterwards, except the table
of aliases and the listeners of a device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from model_store.errors import CorruptStore, PublishFailed, StoreUnreachable

# About sixty times the bundled model; bounds memory use.
MAX_FILE_BYTES = 64 * 1024 * 1024
# Time within which another writer has to end: one that teaches a device takes some seconds.
LOCK_S = 30.0
# File that a writer locks, and the one that it writes before the rename.
LOCK, PARTIAL = ".lock", ".partial"


class Storage:
    """A folder, created by the first write, or the objects behind a URL such as ``s3://bucket/models``."""

    def __init__(self, root: Path | str) -> None:
        """Open a root; ValueError for a URL without a driver."""
        # late, since commands that need no store import this module: these take some hundredths of a second
        import fsspec

        self.is_folder = "://" not in str(root)
        self._fs, self._root = fsspec.filesystem("file"), os.path.abspath(root)
        try:
            if not self.is_folder:
                self._fs, self._root = fsspec.url_to_fs(str(root))
        except (ImportError, ValueError) as error:
            remedy = "use s3://, gs:// or az:// with prime-anc[s3], [gcs] or [azure] installed"
            raise ValueError(f"store: {error}; {remedy}") from error

    def _path(self, place: str) -> str:
        return f"{self._root}/{place}".rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        """List the root or a folder below it; empty if there is none. Errors as `read`."""
        with suppress(FileNotFoundError, NotADirectoryError), self._reading(folder or "store"):
            self._fs.invalidate_cache()
            listed = self._fs.ls(self._path(folder), detail=False)
            return [path.rstrip("/").rpartition("/")[2] for path in listed]
        return []

    def read(self, place: str) -> bytes | None:
        """Read a file; None if it does not exist.

        Raises
        ------
        CorruptStore
            It is not a plain file of at most 64 MiB, or the folder's disk fails.
        StoreUnreachable
            A URL's driver fails.
        """
        with suppress(FileNotFoundError, NotADirectoryError), self._reading(place):
            info = self._fs.info(self._path(place))
            if info["type"] != "file" or info["size"] > MAX_FILE_BYTES:
                expected = f"a plain file of at most {MAX_FILE_BYTES} bytes"
                raise CorruptStore(place, f"a {info['type']} of {info['size']} bytes", expected)
            return self._fs.cat_file(self._path(place))
        return None

    @contextmanager
    def _reading(self, place: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, CorruptStore):
            raise
        except Exception as error:  # drivers raise errors of various types
            if self.is_folder:
                reason = getattr(error, "strerror", None) or type(error).__name__  # without the root
                raise CorruptStore(place, f"what cannot be read ({reason})", "what can be read") from error
            message = f"store: object storage does not answer ({type(error).__name__}: {error})"
            raise StoreUnreachable(message) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other threads and processes that write; may be nested in a thread.

        Programs on other machines are excluded where the file system shares its locks (`flock`).

        Raises
        ------
        PublishFailed
            This is no folder, another writer takes over LOCK_S, or the body fails to write.
        """
        from filelock import FileLock, Timeout  # late: readers need no lock

        if not self.is_folder:
            raise PublishFailed(
                "store: object storage has no lock; publish into a folder, and copy its files there"
            )
        try:
            os.makedirs(self._root, exist_ok=True)
            with FileLock(self._path(LOCK), LOCK_S, is_singleton=True):
                yield
        except Timeout as error:
            message = f"store: another program has held its lock for {LOCK_S:g} s; end it, then repeat"
            raise PublishFailed(message) from error
        except OSError as error:
            raise PublishFailed(f"store: it cannot be written ({error.strerror or error})") from error

    def write(self, place: str, data: bytes) -> None:
        """Write a file in one step, replacing an existing one; raises OSError. In a folder the caller holds the lock.

        A crash leaves the old or the new state: the data is on disk before the rename, and the name before the return.
        """
        if not self.is_folder:
            with self._reading(place):
                self._fs.pipe_file(self._path(place), data)
            return
        target, partial = Path(self._path(place)), Path(self._path(PARTIAL))
        target.parent.mkdir(exist_ok=True)
        _sync(Path(self._root))
        partial.unlink(missing_ok=True)  # of a writer that was killed
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(descriptor)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        _sync(target.parent)

    def remove(self, place: str) -> None:
        """Delete a file of a folder; raises OSError. The caller holds the lock."""
        os.unlink(self._path(place))
        _sync(Path(self._path(place)).parent)


def _sync(folder: Path) -> None:
    """Make the names in a folder as durable as the files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
