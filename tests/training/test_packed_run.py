"""A run as one file: the same report, runs that go on from it, and files that are none."""

import json
import lzma
import shutil

import numpy as np
import pandas as pd
import pytest

from tests.training.conftest import METHODS, QUICK, UPDATES, command
from training import packed_run
from training.report import read_rows
from training.report.__main__ import main as report
from training.run_folder import RunFolder, read_record
from training.run_splits import main

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.fixture(scope="module")
def packed(finished):
    """The quick run as one file."""
    file = finished.folder / "run.json.xz"
    assert packed_run.main(["pack", str(finished.folder / "out"), str(file)]) == 0
    return file


def test_a_packed_run_gives_the_same_report(finished, packed, no_figures, tmp_path, capsys):
    folder = finished.folder
    assert packed.stat().st_size < 40_000  # 116 rows of 60 columns
    assert str(folder) not in packed_run.read_packed(packed).model_dump_json()  # nor where that lay
    assert report([str(packed), str(tmp_path / "unpacked")]) == 0
    printed = capsys.readouterr().out
    expected = (folder / "out" / "tables.md").read_text().splitlines()
    found = (tmp_path / "unpacked" / "tables.md").read_text().splitlines()
    assert [line for line in found if "a page for each listener" not in line] == expected
    pd.testing.assert_frame_equal(read_rows(tmp_path / "unpacked"), read_rows(folder / "out"), check_like=True)
    assert report([str(packed)]) == 0
    assert capsys.readouterr().out == printed
    # What has been unpacked is a run like any other.
    assert packed_run.main(["pack", str(tmp_path / "unpacked"), str(tmp_path / "again.json.xz")]) == 0
    assert (tmp_path / "again.json.xz").read_bytes() == packed.read_bytes()


def test_a_run_goes_on_from_a_packed_one(finished, packed, no_figures, tmp_path, capsys):
    """On a machine that has neither the folder nor the models: only what was not finished is done."""
    folder = finished.folder
    more = ["--methods", f"{METHODS},wmmse_fast", "--from", str(packed)]
    assert main(command(tmp_path, *more)) == 0
    printed = capsys.readouterr().out
    assert "5 of 7 tasks were already finished" in printed
    assert "1 models of finished tasks are not in" in printed
    assert not (tmp_path / "store").exists()
    rows, before = read_rows(tmp_path / "out"), read_rows(folder / "out")
    assert len(rows) == len(before) + 4
    assert set(rows.method) - set(before.method) == {"wmmse_fast"}
    _, starts = read_record(tmp_path / "out" / "run.json")
    assert starts[:1] == packed_run.read_packed(packed).starts[:1]
    assert starts[0]["environment"] == read_record(folder / "out" / "run.json")[1][0]["environment"]
    assert starts[-1]["options"]["packed"] == str(packed)
    with np.load(tmp_path / "out" / "paths.npz") as arrays:
        assert {name.split("/")[2] for name in arrays.files} == {"primary", "secondary", "wmmse"}
    # With the models at hand they are checked and used.
    assert main([*QUICK, "--store", str(folder / "store"), "--out", str(tmp_path / "out"), *more]) == 0
    printed = capsys.readouterr().out
    assert "7 of 7 tasks were already finished" in printed
    assert "models of finished tasks" not in printed
    with np.load(tmp_path / "out" / "paths.npz") as arrays:
        assert any(name.endswith("/prime-log") for name in arrays.files)


def test_a_control_whose_generator_is_missing_is_refused_before_any_work(finished, tmp_path, capsys):
    """A packed run's rows suffice for all but what is made of its models."""
    folder = finished.folder
    shutil.copytree(folder / "out", tmp_path / "trained")
    run = RunFolder(tmp_path / "trained")
    own = run.rows(["prime-log/split00-seed0"]).assign(method="prime", checkpoint="simulated-prime-split00-seed0@1")
    run.write_rows("prime/split00-seed0", own)
    packed_run.pack(tmp_path / "trained", tmp_path / "file")
    more = ["--methods", "wmmse_fast,prime_shuffled_phase", "--from", str(tmp_path / "file")]
    assert main(command(tmp_path, *more)) == 2
    printed = capsys.readouterr()
    assert "model simulated-prime-split00-seed0@1:" in printed.err
    assert "holds no such model" in printed.err
    assert "out/rows/prime/split00-seed0.csv and start without --from" in printed.err
    assert "rows;" not in printed.out


def test_a_packed_run_of_other_settings_is_refused(packed, tmp_path, capsys):
    assert main(command(tmp_path, "--updates", "21", "--from", str(packed))) == 2
    message = capsys.readouterr().err
    assert "run.json.xz: holds a run with other settings" in message
    assert f"updates: found {UPDATES}, asked for 21" in message
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["run.lock"]
    RunFolder.open(tmp_path / "other", {"window": 4096}, {})
    assert packed_run.main(["unpack", str(packed), str(tmp_path / "other")]) == 2
    assert "other: holds a run with other settings" in capsys.readouterr().err
    assert not (tmp_path / "other" / "rows").exists()


def test_unpacking_adds_what_a_folder_lacks_and_keeps_what_it_has(tmp_path):
    run = RunFolder.open(tmp_path / "run", {"window": 4096}, {"commit": "first"})
    row = {"method": "wmmse", "listener": "a", "noise_reduction_db": 20.12349, "band_25_db": 1.26}
    run.finish("wmmse/a", [row])
    run.finish("prime/split00-seed0", [{"split": 0, "listener": "a", "profile": None, "control_rms": 0.0123456}])
    packed_run.pack(tmp_path / "run", tmp_path / "file")
    other = RunFolder.open(tmp_path / "other", {"window": 4096}, {"commit": "second"})
    other.finish("wmmse/a", [row | {"noise_reduction_db": 7.0}])
    packed_run.unpack(tmp_path / "file", tmp_path / "other")
    assert other.rows(["wmmse/a"]).noise_reduction_db.tolist() == [7.0]
    pd.testing.assert_frame_equal(other.rows(["prime/split00-seed0"]), run.rows(["prime/split00-seed0"]))
    assert read_record(tmp_path / "other" / "run.json")[1] == [{"commit": "second"}]
    packed_run.unpack(tmp_path / "file", tmp_path / "new")
    assert RunFolder(tmp_path / "new").rows(["wmmse/a"]).iloc[0].noise_reduction_db == 20.123
    assert RunFolder(tmp_path / "new").rows(["wmmse/a"]).iloc[0].band_25_db == 1.3
    assert RunFolder(tmp_path / "new").rows(["prime/split00-seed0"]).iloc[0].control_rms == 0.01235


def test_unpacking_a_smaller_run_keeps_the_splits_that_are_there(tmp_path):
    """And so does a later command that asks for fewer splits: an untrained design stays in all of them."""
    large = RunFolder.open(tmp_path / "large", {}, {})
    for listener in "abc":
        large.finish(f"wmmse/{listener}", [{"method": "wmmse", "listener": listener}])
    both = {0: ("a", "b"), 1: ("b", "c")}
    expected = large.collect(both)
    small = RunFolder.open(tmp_path / "small", {}, {})
    for listener in "ab":
        small.finish(f"wmmse/{listener}", [{"method": "wmmse", "listener": listener}])
    small.collect({0: ("a", "b")})
    packed_run.pack(tmp_path / "small", tmp_path / "file")
    packed_run.unpack(tmp_path / "file", tmp_path / "large")
    assert large.held_out() == both
    pd.testing.assert_frame_equal(large.collect({0: ("a", "b")}), expected)


def test_what_is_no_packed_run_is_one_clear_line(tmp_path, capsys):
    good = {"settings": {}, "starts": [], "held_out": {}, "core_times": None}

    def holding(method="wmmse", **columns):
        return lzma.compress(json.dumps(good | {"rows": {method: columns}}).encode())

    for content, message in (
        (b"not xz", "cannot be read as a packed run"),
        (lzma.compress(b"{}"), "cannot be read as a packed run"),
        (holding("..", piece=["x"], k=[0]), "found the task '../x', expected METHOD/TASK"),
        (holding(piece=[None, "a"], k=[0, 0]), "found the task 'wmmse/None', expected METHOD/TASK"),
        (holding(piece=["a", "b"], k=[0]), "wmmse: found 1 values of 'k' in 2 rows"),
        (holding(k=[0]), "wmmse: found no column 'piece' with rows in it"),
        (holding(piece=["a"], band_25_db=["loud"]), "wmmse: found text in 'band_25_db', expected numbers"),
        (lzma.compress(json.dumps(good | {"rows": {}}).encode()), "there are no rows"),
    ):
        (tmp_path / "file").write_bytes(content)
        assert packed_run.main(["unpack", str(tmp_path / "file"), str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "run").exists()
    assert report([str(tmp_path / "file")]) == 2
    assert packed_run.main(["pack", str(tmp_path / "nowhere"), str(tmp_path / "file")]) == 2
    RunFolder.open(tmp_path / "empty", {}, {})
    capsys.readouterr()
    assert packed_run.main(["pack", str(tmp_path / "empty"), str(tmp_path / "file")]) == 2
    assert "no task is finished" in capsys.readouterr().err
