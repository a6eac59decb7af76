"""The report from rows of finished runs (`data/`: three held-out listeners in each of two splits, two conditions).

The means are computed anew with the standard library, from the file's text.
"""

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

from training.figures import plot_bands
from training.methods import METHODS
from training.report import by_recording, checked, main, sections, write_report
from training.rows import COLUMNS, PER_NOISE, DesignRow, RunError, by_split, read_rows, split_means, write_parquet

DATA = Path(__file__).parent / "data"
HALF_DIGIT = 5.1e-4  # a table's numbers have three decimals


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


def table_of(text, heading):
    """A table's lines by their first cell, each a dict by column, from the section whose heading is given."""
    block = text.split(f"### {heading}", 1)[1].split("\n### ", 1)[0]
    lines = [line[2:-2].split(" | ") for line in block.splitlines() if line.startswith("|")]
    return {line[0]: dict(zip(lines[0], line, strict=False)) for line in lines[2:]}


@pytest.fixture
def rows():
    return read_csv()


def read_csv(name="pandar-prime-log"):
    rows = pd.read_csv(DATA / f"{name}.csv", keep_default_na=False, na_values=[""])
    return rows.assign(profile=rows["profile"].fillna(""), task="task")


def report(folder, rows):
    rows = rows.copy()
    rows.attrs = {"settings": {}, "starts": [], "held_out": {}}
    write_parquet(folder / "rows.parquet", rows)
    return write_report(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The report of the rows alone, with nothing beside them."""
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.figures.draw", lambda *given: None)
        return folder, report(folder, read_csv())


ORIGINAL = "(pandar, original measurements, window 8192)"
ALL = "(pandar, mean over all conditions, window 8192)"


@pytest.mark.parametrize(
    ("heading", "conditions"),
    [
        (ALL, ("original", "gain_delay")),
        (ORIGINAL, ("original",)),
    ],
)
def test_means_and_deviations_are_those_of_rows(plain, heading, conditions):
    """Each group of conditions apart, every column of every design."""
    table = table_of(plain[1], f"All designs {heading}")
    rows = text_rows()
    for method, k in {(row["method"], int(row["k"])) for row in rows}:
        line = table[DesignRow(method, k, "fast" if k and method == "prime-log" else "paper" if k else "").name]
        for column, title in COLUMNS.items():
            expected = expected_splits(rows, column, method, k, conditions).values()
            assert float(line[title]) == pytest.approx(statistics.mean(expected), abs=HALF_DIGIT)
        splits = expected_splits(rows, "noise_reduction_db", method, k, conditions).values()
        assert float(line["NR SD over splits"]) == pytest.approx(statistics.stdev(splits), abs=HALF_DIGIT)


def test_paired_differences_are_those_of_splits(plain):
    rows = text_rows()
    one = expected_splits(rows, "noise_reduction_db", "prime-log")
    other = expected_splits(rows, "noise_reduction_db", "wmmse")
    gains = [one[split] - other[split] for split in one]
    block = plain[1].split(f"### Paired differences over splits {ORIGINAL}")[1]
    line = next(item for item in block.splitlines() if item.startswith("| prime-log | wmmse |"))
    mean, deviation, least, won = line.strip("| ").split(" | ")[2:6]
    assert float(mean) == pytest.approx(statistics.mean(gains), abs=HALF_DIGIT)
    assert float(deviation) == pytest.approx(statistics.stdev(gains), abs=HALF_DIGIT)
    assert float(least) == pytest.approx(min(gains), abs=HALF_DIGIT)
    assert won == f"{sum(gain > 0 for gain in gains)} of 2"


def test_filters_per_noise_are_drawn_beside(rows):
    found = list(sections(checked(rows)))
    per_noise = rows[rows.method == "wmmse"].assign(method=PER_NOISE)
    names = [text.get_text() for text in plot_bands(found[1:2], per_noise).legends[0].get_texts()]
    assert f"{PER_NOISE} (true paths)" in names


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
    with pytest.raises(RunError):
        report(tmp_path, changed)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.parquet")))
def test_published_rows_can_be_reported(file):
    rows = checked(by_split(read_rows(file)))
    assert set(rows.method) - {"wmmse_fast"} <= set(METHODS)


def test_means_are_taken_within_listeners_first():
    """Two ears of one listener weigh as much as one ear of another."""
    rows = pd.DataFrame(
        {
            "method": "m",
            "k": 0,
            "profile": "",
            "split": [0, 0, 0, 1],
            "seed": 0,
            "listener": ["a", "a", "b", "a"],
            "noise_reduction_db": [10.0, 20.0, 30.0, 40.0],
        }
    )
    means = split_means(rows, ["noise_reduction_db"])
    assert means.noise_reduction_db.tolist() == [22.5, 40.0]


LISTENERS = ("a", "b")


def row(method: str, listener: str, probe: str, nr_db: float, predicted_db: float, **others: object) -> dict:
    names = ("wide_amplification_db", "out_of_band_low_db", "out_of_band_high_db", "max_gain_db", "control_rms")
    return {
        "method": method, "k": 0, "profile": "", "window": 8192, "split": 0, "seed": None, "listener": listener,
        "ear": "left", "condition": "original", "fit": "normal", "dataset": "pandar", "simulated": False,
        "probe": probe, "snr_db": None, "noise_reduction_db": nr_db, "predicted_noise_reduction_db": predicted_db,
        "amplification_db": 0.01, "late_cut_noise_reduction_db": nr_db, "worst_high_band_db": 0.0,
        **dict.fromkeys(names, 0.0), **others,
    }  # fmt: skip


@pytest.fixture
def probed() -> pd.DataFrame:
    subset = {"seed": 0, "support": "c d", "support_recordings": "city storm"}
    made = []
    for probe, gains in (("white", (1.0, 2.0)), ("rain", (-4.0, 0.5)), ("wind", (1.0, 1.0))):
        for listener, gain in zip(LISTENERS, gains, strict=True):
            made.append(row("wmmse", listener, probe, 20.0, 19.0))
            made.append(row("wmmse", listener, probe, 20.5, 19.0, k=3, profile="paper"))
            # The prediction sees what is lost, and half a decibel too little of what is gained.
            made.append(row("prime-log", listener, probe, 20.0 + gain, 18.5 + gain, **subset))
    return pd.DataFrame(made)


def line(text: str, heading: str, probe: str) -> dict[str, str]:
    table = text.split(f"### {heading}")[1].split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in item.strip("|").split("|")] for item in table]
    (found,) = [cell for cell in cells[2:] if cell[0] == probe]
    return dict(zip([f"{place} {name}" for place, name in enumerate(cells[0])], found, strict=True))


def test_gains_follow_rows_per_recording(probed: pd.DataFrame) -> None:
    heading = "prime-log against WMMSE"
    text = by_recording(checked(probed))
    single = list(line(text, heading, "single recording").values())
    # Listener a: - 4 and 1, b: 0.5 and 1. With the fallback the - 4 becomes 0.
    assert [float(cell) for cell in single[2:7]] == pytest.approx([-0.375, -4.0, 0.625, 0.0, 25.0], abs=1e-3)
    assert [float(cell) for cell in single[7:9]] == pytest.approx([-0.875, -4.5], abs=1e-3)
    broad = list(line(text, heading, "broad-band").values())
    assert [float(cell) for cell in broad[2:4]] == pytest.approx([1.5, 1.0], abs=1e-3)
    assert [float(cell) for cell in broad[9:12]] == pytest.approx([-1.5, 1.5, 1.5], abs=1e-3)
    figures = line(text, "NR / AMP", "white")
    assert figures["2 prime-log"] == "21.50 / 0.010"


def test_untrained_rows_enter_every_split_that_is_complete():
    rows = pd.DataFrame({"method": "wmmse", "listener": ["a", "b"], "k": 0})
    rows.attrs = {"held_out": {"0": ["a"], "1": ["a", "b"], "2": ["c"]}}
    found = by_split(rows)
    assert sorted(zip(found["split"], found.listener, strict=True)) == [(0, "a"), (1, "a"), (1, "b")]
