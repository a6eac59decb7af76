import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from model_store.durable import (
    PARTIAL_PREFIX,
    STALE_AFTER_S,
    partial_folder,
    replace_file,
    sweep,
    write_new,
)


def test_a_new_file_is_read_only_and_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_new(file, b"old")
    assert stat.S_IMODE(file.stat().st_mode) & 0o222 == 0
    with pytest.raises(FileExistsError):
        write_new(file, b"new")
    assert file.read_bytes() == b"old"


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="File exists"):
        write_new(tmp_path / "link", b"data")
    assert not (tmp_path / "elsewhere").exists()


def test_a_reader_sees_the_old_content_or_the_new(tmp_path: Path) -> None:
    """Read as fast as possible while another thread replaces: every read is one whole content."""
    file = tmp_path / "file"
    contents = [bytes([letter]) * 50_000 for letter in b"abcdefgh"]
    replace_file(file, contents[0])
    seen, done = set(), threading.Event()

    def write() -> None:
        for content in contents * 10:
            replace_file(file, content)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        seen.add(file.read_bytes())
    writer.join()
    assert seen <= set(contents)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_replacement_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = tmp_path / "file"
    replace_file(file, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_partial_folder_is_gone_afterwards_unless_renamed(tmp_path: Path) -> None:
    with partial_folder(tmp_path) as partial:
        (partial / "file").write_bytes(b"data")
        assert partial.name.startswith(PARTIAL_PREFIX)
    assert os.listdir(tmp_path) == []
    with partial_folder(tmp_path) as partial:
        (partial / "file").write_bytes(b"data")
        partial.rename(tmp_path / "kept")
    assert (tmp_path / "kept" / "file").read_bytes() == b"data"


def test_a_partial_folder_is_as_open_as_the_umask_says(tmp_path: Path) -> None:
    """Whoever serves is often not who publishes."""
    before = os.umask(0o022)
    try:
        with partial_folder(tmp_path) as partial:
            assert stat.S_IMODE(partial.stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_the_sweep_takes_stale_partial_entries_alone(tmp_path: Path) -> None:
    for name in (f"{PARTIAL_PREFIX}old", f"{PARTIAL_PREFIX}young", "ears"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"data")
    (tmp_path / f"{PARTIAL_PREFIX}file").write_bytes(b"data")
    (tmp_path / f"{PARTIAL_PREFIX}link").symlink_to(tmp_path / "ears")
    now_s = (tmp_path / "ears").stat().st_mtime + 2 * STALE_AFTER_S
    os.utime(tmp_path / f"{PARTIAL_PREFIX}young", (now_s - 60, now_s - 60))
    sweep(tmp_path, now_s)
    assert sorted(os.listdir(tmp_path)) == [f"{PARTIAL_PREFIX}young", "ears"]
    assert (tmp_path / "ears" / "file").exists()
