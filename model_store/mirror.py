"""A store's root on object storage, and the local folder that it is copied to.

    URL/NAME/VERSION/           the same five files as in a local root; manifest.sha256 is written last
    URL/aliases.json

Object storage has no rename, so a version there exists once its ``manifest.sha256`` does, which is written last. On
the way back a version is copied into a partial folder, every digest of what was written is checked, and one rename
puts it in its place: the folder is always a valid root.

The URL is any that fsspec knows (``s3://``, ``gs://``, ``az://`` with the driver installed, ``file://``,
``memory://``); it comes from whoever runs the program, never from a request.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model_store.durable import partial_folder, replace_file, sweep, sync_folder, write_new
from model_store.errors import CorruptCheckpoint, CorruptStore, ModelStoreError, PublishFailed, StoreUnreachable
from model_store.names import is_name, version_of
from model_store.store import ALIASES_FILE, ModelStore
from model_store.version_folder import (
    MANIFEST_DIGEST_FILE,
    MANIFEST_FILE,
    MAX_FILE_BYTES,
    TENSOR_FILES,
    VERSION_FILES,
    manifest_digest_line,
    names_in,
    read_version,
    versions_in,
)

Place = tuple[str, int]
"""Name and version."""


def is_url(root: str) -> bool:
    """Whether a root is on object storage, and not a folder."""
    return "://" in root


class Mirror:
    """Keeps `folder` the same as the root at `url`; models are read from `folder`."""

    def __init__(self, url: str, folder: Path) -> None:
        """The folder is made by the first `refresh`. ValueError for a URL that cannot be opened."""
        import fsspec  # here, because few services have such a store and all would start later

        self.folder = folder
        try:
            # Drivers keep listings for a while; what was published a moment ago must be seen.
            self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except Exception as error:  # each driver has its own
            raise ValueError(
                f"store: its URL cannot be opened ({type(error).__name__}: {error}); "
                "check it, and that the driver for it is installed"
            ) from error
        self._root = root.rstrip("/")

    def refresh(self) -> None:
        """Copy what is new, remove what is gone, then copy the aliases.

        Raises StoreUnreachable where the URL cannot be read, and CorruptStore for a version that does not pass its
        checks, after copying all that do. Whatever cannot be copied leaves what is in the folder as it was.
        """
        with _reachable():
            remote = self._versions()
            aliases = self._read_aliases()
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)
        faults: list[CorruptStore] = []
        for place, line in remote.items():
            if not self._has(place, line):
                try:
                    self._copy(place)
                except CorruptStore as error:
                    faults.append(error)
        for name in names_in(self.folder):
            for version in versions_in(self.folder, name):
                if (name, version) not in remote:
                    self._remove((name, version))
        if aliases is None:
            (self.folder / ALIASES_FILE).unlink(missing_ok=True)
        else:
            replace_file(self.folder / ALIASES_FILE, aliases)
        if faults:
            raise faults[0]

    def push(self, store: ModelStore) -> list[str]:
        """Publish at the URL every version of `store`'s own root that is not there yet, then its aliases.

        Returns the references published. Raises CorruptCheckpoint for a version that does not pass its checks,
        PublishFailed where the URL has another version of the same number, and StoreUnreachable.
        """
        pushed = []
        with _reachable():
            remote = self._versions()
            for name in names_in(store.root):
                for version in versions_in(store.root, name):
                    manifest, tensors = read_version(store.root, name, version)
                    written = manifest.to_bytes()
                    line = manifest_digest_line(written)
                    if (name, version) not in remote:
                        contents = {**tensors, MANIFEST_FILE: written, MANIFEST_DIGEST_FILE: line}
                        for file in (*TENSOR_FILES, MANIFEST_FILE, MANIFEST_DIGEST_FILE):
                            self._write(f"{name}/{version}/{file}", contents[file])
                        pushed.append(f"{name}@{version}")
                    elif remote[name, version] != line:
                        raise PublishFailed(
                            f"{name}@{version}: not published; found another version of that number at the URL"
                        )
            if (store.root / ALIASES_FILE).exists():
                self._write(ALIASES_FILE, (store.root / ALIASES_FILE).read_bytes())
        return pushed

    def _versions(self) -> dict[Place, bytes]:
        """Every version at the URL and its digest line."""
        self._files.invalidate_cache()
        found: dict[Place, bytes] = {}
        for path in self._files.glob(f"{self._root}/*/*/{MANIFEST_DIGEST_FILE}"):
            name, number, _ = path.split("/")[-3:]
            version = version_of(number)
            if is_name(name) and version is not None:
                found[name, version] = self._read(f"{name}/{number}/{MANIFEST_DIGEST_FILE}")
        return found

    def _read_aliases(self) -> bytes | None:
        try:
            return self._read(ALIASES_FILE)
        except FileNotFoundError:
            return None

    def _has(self, place: Place, line: bytes) -> bool:
        """Whether the folder holds this very version, whole."""
        try:
            manifest, _ = read_version(self.folder, *place)
        except (CorruptStore, OSError):
            return False
        return manifest_digest_line(manifest.to_bytes()) == line

    def _copy(self, place: Place) -> None:
        name, number = place[0], str(place[1])
        with partial_folder(self.folder) as partial:
            written = partial / name / number
            written.mkdir(parents=True)
            for file in VERSION_FILES:
                try:
                    with _reachable():
                        write_new(written / file, self._read(f"{name}/{number}/{file}"))
                except FileNotFoundError as error:
                    raise CorruptCheckpoint(f"{name}/{number}/{file}", "nothing", "a file") from error
            read_version(partial, *place)
            (self.folder / name).mkdir(exist_ok=True)
            self._remove(place)  # a damaged copy, if there is one
            try:
                os.rename(written, self.folder / name / number)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another process was first
                    raise
            sync_folder(self.folder / name)

    def _remove(self, place: Place) -> None:
        """Rename it away in one step, then delete file by file."""
        with partial_folder(self.folder) as partial:
            try:
                os.rename(self.folder / place[0] / str(place[1]), partial / "removed")
            except FileNotFoundError:
                return
            shutil.rmtree(partial / "removed", ignore_errors=True)

    def _read(self, path: str) -> bytes:
        """Content at the URL; at most one byte more than a file may have is fetched."""
        data: bytes = self._files.cat_file(f"{self._root}/{path}", end=MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise CorruptCheckpoint(path, f"more than {MAX_FILE_BYTES} bytes", "fewer")
        return data

    def _write(self, path: str, data: bytes) -> None:
        self._files.makedirs(f"{self._root}/{path}".rpartition("/")[0], exist_ok=True)  # nothing, on object storage
        self._files.pipe_file(f"{self._root}/{path}", data)


@contextmanager
def _reachable() -> Iterator[None]:
    """Turns a driver's own errors into StoreUnreachable, whose text names no address."""
    try:
        yield
    except (ModelStoreError, FileNotFoundError):
        raise
    except Exception as error:
        raise StoreUnreachable(
            f"store: its URL cannot be read ({type(error).__name__}); the copy is kept"
        ) from error
