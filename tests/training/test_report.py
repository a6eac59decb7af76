"""The report from rows of finished runs (`data/`: three held-out listeners in each of two splits, two conditions).

The means are computed anew with the standard library, from the file's text.
"""

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

from training.report import (
    FIGURES,
    checked,
    differences,
    main,
    mean_figures,
    sections,
    summary,
    write_report,
)
from training.rows import RunError, by_split, split_means, write_rows

DATA = Path(__file__).parent / "data"


def text_rows(name="pandar-prime-log"):
    """The rows as text, read without the code under test."""
    with (DATA / f"{name}.csv").open() as stream:
        return list(csv.DictReader(stream))


def expected_splits(rows, column, method, k=0, conditions=("original",)):
    """Mean of each split: cases within a listener first, then listeners."""
    cases = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["method"] == method and int(row["k"]) == k and row["condition"] in conditions:
            cases[row["split"]][row["listener"]].append(float(row[column]))
    return {
        split: statistics.mean(statistics.mean(values) for values in listeners.values())
        for split, listeners in cases.items()
    }


@pytest.fixture
def rows():
    rows = pd.read_csv(DATA / "pandar-prime-log.csv", keep_default_na=False, na_values=[""])
    return rows.assign(profile=rows["profile"].fillna(""), task="task")


@pytest.mark.parametrize(
    ("conditions", "names"),
    [("mean over all conditions", ("original", "gain_delay")), ("original measurements", ("original",))],
)
def test_means_and_deviations_are_those_of_rows(rows, conditions, names):
    """Each group of conditions apart, every column of every design."""
    table = summary(dict(sections(checked(rows)))[f"{conditions}, window 8192"]).set_index("design")
    rows = text_rows()
    for method, k in {(row["method"], int(row["k"])) for row in rows}:
        line = table.loc[f"{method} + GN({k})" if k else method]
        for column, title in FIGURES.items():
            splits = expected_splits(rows, column, method, k, names).values()
            assert line[title] == pytest.approx(statistics.mean(splits), abs=1e-9)
        splits = expected_splits(rows, "noise_reduction_db", method, k, names).values()
        assert line["SD"] == pytest.approx(statistics.stdev(splits), abs=1e-9)


def test_paired_differences_are_those_of_splits(rows):
    section = dict(sections(checked(rows)))["original measurements, window 8192"]
    line = differences(section).set_index(["first", "second"]).loc["prime-log", "wmmse"]
    rows = text_rows()
    one = expected_splits(rows, "noise_reduction_db", "prime-log")
    other = expected_splits(rows, "noise_reduction_db", "wmmse")
    gains = [one[split] - other[split] for split in one]
    assert line["NR dB"] == pytest.approx(statistics.mean(gains), abs=1e-9)
    assert line["SD"] == pytest.approx(statistics.stdev(gains), abs=1e-9)
    assert line["splits won"] == f"{sum(gain > 0 for gain in gains)} of 2"


def test_manifest_has_starts_and_default_updates(rows):
    figures = mean_figures(rows.assign(probe="white", snr_db=None), rows.assign(probe="rain", snr_db=None))
    starts = set(rows.method)
    assert set(figures) == starts | {f"prime-log + GN({k})" for k in (1, 2, 3)} | {"wmmse + GN(3)"}
    original = rows[(rows.condition == "original") & (rows.method == "wmmse") & (rows.k == 0)]
    expected = original.groupby("listener").noise_reduction_db.mean().mean()
    assert figures["wmmse"]["noise_reduction_db"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: pd.concat([rows, rows[:3]]), "found 3 cases twice"),
        (
            lambda rows: rows.assign(support="person-04; person-23"),
            "found person-23 held out and in its model's support",
        ),
        (lambda rows: rows.drop(columns="control_rms"), "found none named control_rms"),
        (
            lambda rows: rows.assign(dataset=["other"] + ["pandar"] * (len(rows) - 1)),
            r"found \['other', 'pandar'\]",
        ),
    ],
)
def test_unusable_rows_are_rejected(tmp_path, capsys, rows, change, message):
    changed = change(rows)
    with pytest.raises(RunError, match=message):
        checked(changed)
    changed.attrs = {"settings": {}, "starts": [], "held_out": {}}
    write_rows(tmp_path / "rows.parquet", changed)
    with pytest.raises(RunError):
        write_report(tmp_path)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_means_are_taken_within_listeners_first():
    """Two ears of one listener weigh as much as one ear of another."""
    rows = pd.DataFrame(
        {
            "design": "m",
            "split": [0, 0, 0, 1],
            "listener": ["a", "a", "b", "a"],
            "noise_reduction_db": [10.0, 20.0, 30.0, 40.0],
        }
    )
    means = split_means(rows, ["noise_reduction_db"])
    assert means.noise_reduction_db.tolist() == [22.5, 40.0]


def test_untrained_rows_enter_every_split_that_is_complete():
    rows = pd.DataFrame({"method": "wmmse", "listener": ["a", "b"], "k": 0})
    rows.attrs = {"held_out": {"0": ["a"], "1": ["a", "b"], "2": ["c"]}}
    found = by_split(rows)
    assert sorted(zip(found["split"], found.listener, strict=True)) == [(0, "a"), (1, "a"), (1, "b")]
