"""Reads one version's folder and trusts nothing in it.

A version is exactly five plain files. A sixth is refused like a missing one, since no digest covers it. The
manifest holds the digests of the tensor files, and ``manifest.sha256`` (in the form of ``sha256sum``, so that
``sha256sum -c`` checks it) holds the manifest's own.

Every step goes through a file descriptor opened with O_NOFOLLOW, so that no symbolic link is followed below the
root and nothing can be exchanged between the check and the read; digests are taken of the very bytes that are used.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model_store.errors import CorruptCheckpoint, CorruptStore
from model_store.manifest import Manifest, sha256
from model_store.names import is_name, version_of

MANIFEST_FILE = "manifest.json"
MANIFEST_DIGEST_FILE = "manifest.sha256"
GENERATOR_FILE = "generator.safetensors"
REFERENCE_FILE = "reference.safetensors"
GOLDEN_FILE = "golden.safetensors"
TENSOR_FILES = (GENERATOR_FILE, REFERENCE_FILE, GOLDEN_FILE)
VERSION_FILES = (MANIFEST_FILE, MANIFEST_DIGEST_FILE, *TENSOR_FILES)

MAX_FILE_BYTES = 64 * 1024 * 1024
"""A hundred times the largest file published so far: bounds the memory that reading takes."""


def manifest_digest_line(manifest: bytes) -> bytes:
    """Content of ``manifest.sha256`` for a manifest's bytes."""
    return f"{sha256(manifest).removeprefix('sha256:')}  {MANIFEST_FILE}\n".encode()


def names_in(root: Path) -> list[str]:
    """Models in `root`, sorted: its folders that are called like a model and hold a version, or cannot be read.

    [] where `root` is no folder.
    """
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in folders if is_name(name) and _may_hold_versions(root, name))


def _may_hold_versions(root: Path, name: str) -> bool:
    try:
        return bool(versions_in(root, name))
    except CorruptStore:
        return True


def versions_in(root: Path, name: str) -> list[int]:
    """Versions of `name` in `root`, ascending; [] if there is no such model.

    Whatever is called like a version counts, sound or not, so that a broken latest version is an error and not
    silently replaced by the one before it. CorruptStore if `name` is a link, no folder, or cannot be read.
    """
    folder = root / name
    try:
        mode = folder.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # the latter where the root is a file
        return []
    if not stat.S_ISDIR(mode):
        raise CorruptStore(name, _kind(mode), "a folder")
    try:
        entries = os.listdir(folder)
    except OSError as error:
        raise CorruptStore(name, f"a folder that cannot be read ({error.strerror})", "a readable one") from error
    return sorted(version for entry in entries if (version := version_of(entry)) is not None)


def read_manifest(root: Path, name: str, version: int) -> Manifest:
    """The manifest of one version, checked against its digest and its place; CorruptCheckpoint if it fails."""
    with _opened(root, name, version) as folder:
        return _manifest_from(folder, name, version)


def read_version(root: Path, name: str, version: int) -> tuple[Manifest, dict[str, bytes]]:
    """Manifest and content of the tensor files, every digest checked.

    Raises CorruptCheckpoint, naming the file, for one that is missing, truncated, altered, linked, not a plain
    file, larger than 64 MiB, or that does not belong there.
    """
    with _opened(root, name, version) as folder:
        manifest = _manifest_from(folder, name, version)
        if strangers := sorted(set(os.listdir(folder)) - set(VERSION_FILES)):
            raise CorruptCheckpoint(
                f"{name}/{version}/{strangers[0]}",
                "a file that no digest covers",
                "only " + ", ".join(VERSION_FILES),
            )
        files = {file: _read(folder, file, f"{name}/{version}/{file}") for file in TENSOR_FILES}
    for file, data in files.items():
        if (found := sha256(data)) != manifest.files[file]:
            raise CorruptCheckpoint(
                f"{name}/{version}/{file}", f"{found} ({len(data)} bytes)", manifest.files[file]
            )
    return manifest, files


def read_plain_file(folder: Path, file: str) -> bytes:
    """Content of a plain file directly in `folder`; CorruptStore if it is missing or anything else."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _read(descriptor, file, file)
    finally:
        os.close(descriptor)


def _manifest_from(folder: int, name: str, version: int) -> Manifest:
    place = f"{name}/{version}"
    data = _read(folder, MANIFEST_FILE, f"{place}/{MANIFEST_FILE}")
    line = _read(folder, MANIFEST_DIGEST_FILE, f"{place}/{MANIFEST_DIGEST_FILE}")
    if line != manifest_digest_line(data):
        stated = ascii(line[:64].decode("latin-1"))
        raise CorruptCheckpoint(
            f"{place}/{MANIFEST_FILE}", sha256(data), f"the digest in {MANIFEST_DIGEST_FILE}, {stated}"
        )
    try:
        manifest = Manifest.from_bytes(data)
    except ValueError as error:  # as pydantic's and json's errors are
        raise CorruptCheckpoint(
            f"{place}/{MANIFEST_FILE}", _one_line(error), "a manifest that this version of the package can read"
        ) from error
    if (manifest.name, manifest.version) != (name, version):
        raise CorruptCheckpoint(
            f"{place}/{MANIFEST_FILE}",
            f"the manifest of {manifest.name}@{manifest.version}",
            f"that of {name}@{version}",
        )
    if sorted(manifest.files) != sorted(TENSOR_FILES):
        raise CorruptCheckpoint(
            f"{place}/{MANIFEST_FILE}", f"digests of {sorted(manifest.files)}", f"of {sorted(TENSOR_FILES)}"
        )
    return manifest


@contextmanager
def _opened(root: Path, name: str, version: int) -> Iterator[int]:
    """Descriptor of the version's folder, reached without following a link below `root`."""
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY))
        for depth, part in enumerate((name, str(version))):
            place = name if depth == 0 else f"{name}/{version}"
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            try:
                descriptors.append(os.open(part, flags, dir_fd=descriptors[-1]))
            except OSError as error:
                raise CorruptCheckpoint(place, _what_is(part, descriptors[-1], error), "a folder") from error
        yield descriptors[-1]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _read(folder: int, file: str, place: str) -> bytes:
    """Content of a plain file in an open folder. O_NONBLOCK: opening a pipe must not wait for a writer."""
    expected = f"a plain file of at most {MAX_FILE_BYTES} bytes"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise CorruptCheckpoint(place, _what_is(file, folder, error), expected) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptCheckpoint(place, _kind(status.st_mode), expected)
        if status.st_size > MAX_FILE_BYTES:
            raise CorruptCheckpoint(place, f"{status.st_size} bytes", expected)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(descriptor)


def _what_is(entry: str, folder: int, error: OSError) -> str:
    """What is at `entry`, which could not be opened: nothing, a link, or something that gave `error`."""
    try:
        mode = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return "nothing"
    return _kind(mode) if stat.S_ISLNK(mode) else f"{_kind(mode)} ({error.strerror})"


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISFIFO, "a pipe"),
    )
    return next((words for test, words in kinds if test(mode)), "a special file")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
