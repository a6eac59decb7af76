import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_store import Checkpoint, CorruptCheckpoint, CorruptStore, ModelStore
from model_store.manifest import Manifest
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


def put(file: Path, data: bytes) -> None:
    """Overwrite a read-only file."""
    file.unlink()
    file.write_bytes(data)


def put_manifest(folder: Path, data: bytes) -> None:
    """A manifest with the digest that belongs to it: forged, not damaged."""
    put(folder / MANIFEST_FILE, data)
    put(folder / MANIFEST_DIGEST_FILE, manifest_digest_line(data))


def test_a_version_is_five_files_that_sha256sum_confirms(folder: Path) -> None:
    assert sorted(os.listdir(folder)) == sorted(VERSION_FILES)
    subprocess.run(
        ["sha256sum", "--check", "--strict", MANIFEST_DIGEST_FILE], cwd=folder, check=True, capture_output=True
    )
    manifest = Manifest.from_bytes((folder / MANIFEST_FILE).read_bytes())
    sums = "".join(f"{digest.removeprefix('sha256:')}  {file}\n" for file, digest in manifest.files.items())
    subprocess.run(
        ["sha256sum", "--check", "--strict"], cwd=folder, input=sums.encode(), check=True, capture_output=True
    )


@given(data=st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_noticed(store: ModelStore, folder: Path, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(VERSION_FILES))
    sound = (folder / file).read_bytes()
    position, bit = data.draw(st.integers(0, len(sound) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(sound)
    flipped[position] ^= 1 << bit
    put(folder / file, bytes(flipped))
    try:
        with pytest.raises(CorruptCheckpoint, match=r"found .*expected ") as caught:
            read_version(store.root, "ears", 1)
        # A digest that does not fit speaks against the file that it is the digest of.
        assert caught.value.file == f"ears/1/{MANIFEST_FILE if file == MANIFEST_DIGEST_FILE else file}"
    finally:
        put(folder / file, sound)
    read_version(store.root, "ears", 1)


@pytest.mark.parametrize("file", VERSION_FILES)
def test_a_truncated_file_is_noticed(store: ModelStore, folder: Path, file: str) -> None:
    sound = (folder / file).read_bytes()
    for n_bytes in (0, len(sound) // 2, len(sound) - 1):
        put(folder / file, sound[:n_bytes])
        with pytest.raises(CorruptCheckpoint, match="ears/1/"):
            read_version(store.root, "ears", 1)


@pytest.mark.parametrize("file", VERSION_FILES)
def test_a_linked_file_is_refused_though_its_content_is_right(
    store: ModelStore, folder: Path, file: str, tmp_path: Path
) -> None:
    (folder / file).rename(tmp_path / "elsewhere")
    (folder / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptCheckpoint, match=f"ears/1/{file}: found a symbolic link"):
        read_version(store.root, "ears", 1)


def test_a_linked_version_is_refused(store: ModelStore, folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptCheckpoint, match="ears/1: found a symbolic link, expected a folder"):
        read_version(store.root, "ears", 1)


def test_a_linked_model_is_refused_and_not_listed(store: ModelStore, folder: Path) -> None:
    (store.root / "other").symlink_to(folder.parent)
    with pytest.raises(CorruptStore, match="other: found a symbolic link, expected a folder"):
        versions_in(store.root, "other")
    with pytest.raises(CorruptCheckpoint, match="other: found a symbolic link, expected a folder"):
        read_version(store.root, "other", 1)
    assert names_in(store.root) == ["ears"]


def test_the_root_may_be_a_link(store: ModelStore, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.root)
    assert names_in(tmp_path / "link") == ["ears"]
    assert read_version(tmp_path / "link", "ears", 1) == read_version(store.root, "ears", 1)


@pytest.mark.parametrize(
    ("make", "found"), [(lambda place: None, "nothing"), (os.mkfifo, "a pipe"), (os.mkdir, "a folder")]
)
@pytest.mark.parametrize("file", VERSION_FILES)
def test_what_is_no_plain_file_neither_passes_nor_blocks(
    store: ModelStore, folder: Path, file: str, make: Callable[[Path], object], found: str
) -> None:
    (folder / file).unlink()
    make(folder / file)
    with pytest.raises(CorruptCheckpoint, match=f"ears/1/{file}: found {found}, expected a plain file"):
        read_version(store.root, "ears", 1)


def test_a_huge_file_is_refused_unread(store: ModelStore, folder: Path) -> None:
    os.chmod(folder / TENSOR_FILES[0], 0o644)
    os.truncate(folder / TENSOR_FILES[0], 2**40)  # sparse: it takes no room
    with pytest.raises(CorruptCheckpoint, match=f"found {2**40} bytes, expected .* at most {MAX_FILE_BYTES}"):
        read_version(store.root, "ears", 1)


def test_a_file_that_no_digest_covers_is_refused(store: ModelStore, folder: Path) -> None:
    (folder / "extra.safetensors").write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match=r"ears/1/extra\.safetensors: found a file that no digest covers"):
        read_version(store.root, "ears", 1)


@pytest.mark.parametrize(("name", "version"), [("ears", 2), ("other", 1)])
def test_a_copied_version_is_not_another_version(store: ModelStore, folder: Path, name: str, version: int) -> None:
    shutil.copytree(folder, store.root / name / str(version))
    with pytest.raises(CorruptCheckpoint, match=f"found the manifest of ears@1, expected that of {name}@{version}"):
        read_version(store.root, name, version)


def test_a_forged_manifest_must_still_be_one(store: ModelStore, folder: Path, checkpoint: Checkpoint) -> None:
    sound = (folder / MANIFEST_FILE).read_bytes()
    for forged, found in (
        (b"not json\n", "Expecting value"),
        (b"[]\n", "dictionary"),
        (b"\xff\n", "decode"),
        (sound.replace(b'"schema_version": 1', b'"schema_version": 2'), "schema_version"),
        (sound.replace(b'"golden.safetensors"', b'"../golden.safetensors"'), "digests of"),
    ):
        put_manifest(folder, forged)
        with pytest.raises(CorruptCheckpoint, match=f"ears/1/{MANIFEST_FILE}: found .*{found}"):
            read_version(store.root, "ears", 1)


def test_only_what_is_called_like_a_version_counts(store: ModelStore, folder: Path) -> None:
    for entry in ("0", "01", "2.old", "latest", ".partial-x"):
        (folder.parent / entry).mkdir()
    (folder.parent / "7").mkdir()
    assert versions_in(store.root, "ears") == [1, 7]
    (store.root / "Ears").mkdir()
    (store.root / "empty").mkdir()
    assert names_in(store.root) == ["ears"]
    with pytest.raises(CorruptCheckpoint, match=r"ears/7/manifest\.json: found nothing"):
        read_version(store.root, "ears", 7)


def test_no_root_holds_no_models(tmp_path: Path) -> None:
    assert names_in(tmp_path / "none") == []
    assert versions_in(tmp_path / "none", "ears") == []
