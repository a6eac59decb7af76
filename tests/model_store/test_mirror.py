"""A store on object storage: copied whole or not at all, checked on the way, and published by its last file."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from model_store import Checkpoint, CorruptCheckpoint, ModelStore, PublishFailed, StoreUnreachable
from model_store.__main__ import main
from model_store.durable import PARTIAL_PREFIX
from model_store.mirror import Mirror, is_url
from model_store.version_folder import MANIFEST_DIGEST_FILE, VERSION_FILES
from tests.model_store import cases

_numbers = itertools.count()


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty root: in fsspec's memory, which knows objects and no rename, and in a folder."""
    where = f"memory://bucket-{next(_numbers)}/models" if request.param == "memory" else f"file://{tmp_path}/bucket"
    yield where
    files, root = fsspec.core.url_to_fs(where)
    if files.exists(root):
        files.rm(root, recursive=True)


@pytest.fixture
def mirror(url: str, tmp_path: Path, store: ModelStore) -> Mirror:
    """Of a root that holds `ears@1`."""
    mirror = Mirror(url, tmp_path / "copy")
    assert mirror.push(store) == ["ears@1"]
    return mirror


def copy(mirror: Mirror) -> ModelStore:
    """What reads the local folder."""
    return ModelStore(mirror.folder, include_bundled=False)


def overwrite(url: str, path: str, data: bytes) -> None:
    files, root = fsspec.core.url_to_fs(url)
    files.pipe_file(f"{root}/{path}", data)


def remove(url: str, path: str) -> None:
    files, root = fsspec.core.url_to_fs(url)
    files.rm(f"{root}/{path}", recursive=True)


def test_what_was_pushed_is_what_is_copied(mirror: Mirror, store: ModelStore, checkpoint: Checkpoint) -> None:
    store.publish("ears", cases.checkpoint(2))
    store.set_alias("live", "ears@2")
    assert mirror.push(store) == ["ears@2"]
    assert mirror.push(store) == []
    mirror.refresh()
    found = copy(mirror)
    assert [(each.reference, each.digest) for each in found.list()] == [
        (each.reference, each.digest) for each in store.list()
    ]
    assert found.resolve("live").digest == store.resolve("ears@2").digest
    found.verify("ears@1")
    assert not [each for each in os.listdir(mirror.folder) if each.startswith(PARTIAL_PREFIX)]


def test_what_is_gone_goes_and_what_is_there_is_not_copied_again(
    mirror: Mirror, store: ModelStore, url: str
) -> None:
    store.publish("ears", cases.checkpoint(2))
    store.set_alias("live", "ears@2")
    mirror.push(store)
    mirror.refresh()
    before = copy(mirror).resolve("ears@1").folder.stat()
    remove(url, "ears/2")
    remove(url, "aliases.json")
    mirror.refresh()
    assert [each.reference for each in copy(mirror).list()] == ["ears@1"]
    assert copy(mirror).aliases() == {}
    after = copy(mirror).resolve("ears@1").folder.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("file", VERSION_FILES)
def test_an_altered_or_missing_file_is_refused_and_the_rest_is_copied(
    mirror: Mirror, store: ModelStore, url: str, file: str
) -> None:
    mirror.refresh()
    store.publish("ears", cases.checkpoint(2))
    store.publish("other", cases.checkpoint(3))
    mirror.push(store)
    content = bytearray((store.resolve("ears@2").folder / file).read_bytes())
    content[-3] ^= 1
    overwrite(url, f"ears/2/{file}", bytes(content))
    with pytest.raises(CorruptCheckpoint, match="ears/2"):
        mirror.refresh()
    assert [each.reference for each in copy(mirror).list()] == ["ears@1", "other@1"]
    remove(url, f"ears/2/{file}")
    if file == MANIFEST_DIGEST_FILE:
        mirror.refresh()  # a version without it is none yet
    else:
        with pytest.raises(CorruptCheckpoint, match=file):
            mirror.refresh()
    assert [each.reference for each in copy(mirror).list()] == ["ears@1", "other@1"]


def test_a_damaged_copy_is_mended(mirror: Mirror) -> None:
    mirror.refresh()
    file = copy(mirror).resolve("ears").folder / "generator.safetensors"
    os.chmod(file, 0o644)
    file.write_bytes(b"")
    mirror.refresh()
    assert file.stat().st_size > 0
    assert copy(mirror).load("ears").manifest.name == "ears"


def test_a_version_of_another_content_is_not_overwritten(
    mirror: Mirror, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    other = ModelStore(tmp_path / "other", include_bundled=False)
    other.publish("ears", cases.checkpoint(9))
    with pytest.raises(PublishFailed, match="ears@1"):
        mirror.push(other)
    mirror.refresh()
    assert copy(mirror).resolve("ears").digest != other.resolve("ears").digest


def test_names_that_break_the_rule_are_passed_over(mirror: Mirror, url: str) -> None:
    for path in (
        f"Ears/1/{MANIFEST_DIGEST_FILE}",
        f"ears/01/{MANIFEST_DIGEST_FILE}",
        f"ears/x/{MANIFEST_DIGEST_FILE}",
    ):
        files, root = fsspec.core.url_to_fs(url)
        files.makedirs(f"{root}/{path}".rpartition("/")[0], exist_ok=True)
        overwrite(url, path, b"")
    mirror.refresh()
    assert [each.reference for each in copy(mirror).list()] == ["ears@1"]


def test_an_unreachable_url_leaves_the_copy_as_it_was(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.refresh()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "key AKIA was refused", "s3://bucket/secret")

    monkeypatch.setattr(mirror._files, "glob", refuse)
    with pytest.raises(StoreUnreachable) as refused:
        mirror.refresh()
    assert "secret" not in str(refused.value)
    assert "AKIA" not in str(refused.value)
    copy(mirror).load("ears")


def test_roots() -> None:
    assert is_url("s3://bucket/models")
    assert not is_url("/var/lib/models")
    assert not is_url("models")


@pytest.mark.parametrize("url", ["warp://x", "zip://a::file:///nowhere/none.zip"])
def test_a_url_that_cannot_be_opened_says_so(url: str) -> None:
    with pytest.raises(
        ValueError, match=r"^store: its URL cannot be opened \((ValueError|FileNotFoundError): .*check it"
    ):
        Mirror(url, Path("nowhere"))


def test_the_command_pushes(store: ModelStore, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for said in ("ears@1", "nothing new"):
        assert main(["--store", str(store.root), "push", url]) == 0
        assert capsys.readouterr().out.strip() == said
    assert main(["--store", str(store.root), "push", "warp://x"]) == 1
