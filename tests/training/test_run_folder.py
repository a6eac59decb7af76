"""A run on disk: settings, records, rows and who may write."""

import json

import pandas as pd
import pytest

from training.run_folder import RunError, RunFolder, exclusive, read_record, read_rows


def test_a_run_folder_refuses_other_settings_and_keeps_its_record(tmp_path):
    RunFolder.open(tmp_path, {"window": 4096}, {})
    with pytest.raises(RunError, match="window: found 4096, asked for 8192"):
        RunFolder.open(tmp_path, {"window": 8192}, {})
    assert json.loads((tmp_path / "run.json").read_text()) == {"settings": {"window": 4096}, "starts": [{}]}
    setup = {"layout": {"width": 64}, "training": {"n_updates": 20, "schedule": "constant"}}
    other = {"layout": {"width": 64}, "training": {"n_updates": 30}}
    RunFolder.open(tmp_path / "nested", {"generators": {"prime": setup}}, {})
    with pytest.raises(RunError) as caught:
        RunFolder.open(tmp_path / "nested", {"generators": {"prime": other, "new": setup}}, {})
    assert str(caught.value) == (
        f"{tmp_path / 'nested'}: holds a run with other settings (generators.new: found None, asked for a table; "
        "generators.prime.training.n_updates: found 20, asked for 30; "
        "generators.prime.training.schedule: found 'constant', asked for None); choose another"
    )
    RunFolder.open(tmp_path, {"window": 4096}, {"commit": "later"})
    assert read_record(tmp_path / "run.json") == ({"window": 4096}, [{}, {"commit": "later"}])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json: cannot be read"):
        RunFolder.open(tmp_path, {"window": 4096}, {})


def test_all_that_is_finished_is_reported_whatever_the_last_command_asked_for(tmp_path):
    """An untrained design enters each split whose held-out listeners it has all designed for, and no other."""
    folder = RunFolder.open(tmp_path, {}, {})
    for listener in "abc":
        folder.finish(f"wmmse/{listener}", [{"method": "wmmse", "listener": listener}])
    folder.finish("fomaml/split01", [{"method": "fomaml", "listener": "a", "split": 1}])
    rows = folder.collect({0: ("a", "b"), 1: ("a", "c"), 2: ("c", "d")})
    found = sorted(rows[["method", "split", "listener"]].itertuples(index=False, name=None))
    assert found == [
        ("fomaml", 1, "a"),
        ("wmmse", 0, "a"), ("wmmse", 0, "b"), ("wmmse", 1, "a"), ("wmmse", 1, "c"),
    ]  # fmt: skip
    assert pd.read_csv(tmp_path / "cases.csv").shape == (5, len(rows.columns))


def test_one_process_works_in_a_folder(tmp_path):
    with exclusive(tmp_path), pytest.raises(RunError, match="another run works in"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


def test_an_unfinished_split_is_no_report(tmp_path):
    folder = RunFolder.open(tmp_path, {}, {})
    folder.finish("wmmse/a", [{"method": "wmmse", "listener": "a"}])
    with pytest.raises(RunError, match="no method is finished for a whole split"):
        folder.collect({0: ("a", "b")})


def test_a_torn_row_file_is_named(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(RunError, match=r"rows\.csv: cannot be read"):
        read_rows(file)
