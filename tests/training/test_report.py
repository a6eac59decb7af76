"""The report from rows of finished runs (`data/`: three held-out listeners in each of two splits, two conditions).

Rows of methods that those runs lack are derived from real ones by arithmetic. The means are computed anew with
the standard library, from the file's text.
"""

import csv
import math
import re
import shutil
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from training.report import COLUMNS, ReportError, as_design, design_name, split_means, write_report
from training.report.__main__ import main
from training.report.designs import METHODS, Design, design_named, in_order
from training.report.figures import STYLES, pareto_front, trails
from training.report.listener_pages import smoothed_level_db
from training.report.published import PUBLISHED, PUBLISHED_DIFFERENCES
from training.report.rows import checked

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


def derived(rows, method, *, of="wmmse", gain_db=0.0, k=0, profile="", **changes):
    """Rows of another method, `gain_db` above a real one's in every band."""
    own = rows[(rows.method == of) & (rows.k == 0)].copy()
    for column in ["noise_reduction_db", *(name for name in own if name.startswith("band_"))]:
        own[column] += gain_db
    return own.assign(method=method, k=k, profile=profile, **changes)


@pytest.fixture
def rows():
    return pd.read_csv(DATA / "pandar-prime-log.csv", keep_default_na=False, na_values=[""])


def report(folder, rows):
    rows.to_csv(folder / "cases.csv", index=False)
    return write_report(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The report of the rows alone, with nothing beside them."""
    folder = tmp_path_factory.mktemp("plain")
    shutil.copy(DATA / "pandar-prime-log.csv", folder / "cases.csv")
    return folder, write_report(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The report of an experiment with every part: the paper's methods, times, weighted FxLMS, paths."""
    folder = tmp_path_factory.mktemp("whole")
    rows = pd.read_csv(DATA / "pandar-prime-log.csv", keep_default_na=False, na_values=[""])
    more = [
        derived(rows, "ratio_base_full_band", of="ratio_base_full_band", gain_db=9, k=4, profile="paper"),
        derived(rows, "prime", gain_db=-4),
        derived(rows, "prime", gain_db=-1, k=3, profile="paper"),
        derived(rows, "prime", gain_db=-0.5, k=3, profile="fast"),
        derived(rows, "prime_no_interpolation", gain_db=-5.5),
        derived(rows, "skip_mp", gain_db=-3),
        derived(rows, "no_skip_mp", gain_db=-7),
        derived(rows, "iterative_fir", gain_db=0.5),
        derived(rows, "fxnlms", gain_db=-2, paths="true"),
        derived(rows, "wmmse_shared", gain_db=-12),
    ]
    pd.concat([rows, *more]).to_csv(folder / "cases.csv", index=False)
    weighted = derived(rows[rows.condition == "original"], "weighted_fxlms", gain_db=-1, paths="true")
    weighted.to_csv(folder / "weighted_fxlms.csv", index=False)
    times = [("prime", 0, "", "GPU A", 0.7), ("prime", 3, "paper", "GPU A", 2.25), ("wmmse", 0, "", "CPU B", 5.0)]
    pd.DataFrame(times, columns=["method", "k", "profile", "device", "core_ms"]).assign(n_cases=8).to_csv(
        folder / "core_time.csv", index=False
    )
    impulse = np.zeros(2048)
    impulse[3] = 0.5
    names = ("primary", "secondary", "wmmse", "prime-log", "prime-log + GN(1)")
    arrays = {
        f"{who}/{ear}/{x}": impulse
        for who in ("person-02", "person-99")
        for ear in ("left", "right")
        for x in names
    }
    np.savez(folder / "paths.npz", **arrays)
    return folder, write_report(folder)


ORIGINAL = "(pandar, original measurements, window 8192)"
ALL = "(pandar, mean over all conditions, window 8192)"


@pytest.mark.parametrize(
    ("heading", "conditions"),
    [
        (ALL, ("original", "gain_delay")),
        (ORIGINAL, ("original",)),
        ("(pandar, modified secondary paths, window 8192)", ("gain_delay",)),
    ],
)
def test_means_and_deviations_are_those_of_the_rows(plain, heading, conditions):
    """Each group of conditions apart, every column of every design."""
    table = table_of(plain[1], f"All designs {heading}")
    rows = text_rows()
    for method, k in {(row["method"], int(row["k"])) for row in rows}:
        line = table[design_name(method, k)]
        for column, title in COLUMNS.items():
            expected = expected_splits(rows, column, method, k, conditions).values()
            assert float(line[title]) == pytest.approx(statistics.mean(expected), abs=HALF_DIGIT)
        splits = expected_splits(rows, "noise_reduction_db", method, k, conditions).values()
        assert float(line["NR SD over splits"]) == pytest.approx(statistics.stdev(splits), abs=HALF_DIGIT)


def test_the_worst_ear_and_the_loud_high_bands_are_shown(plain):
    line = table_of(plain[1], f"All designs {ORIGINAL}")["prime-log + GN(1)"]
    own = [
        row for row in text_rows() if (row["method"], row["k"], row["condition"]) == ("prime-log", "1", "original")
    ]
    assert float(line["worst ear NR"]) == pytest.approx(
        min(float(row["noise_reduction_db"]) for row in own), abs=HALF_DIGIT
    )
    loudest = [float(row["worst_high_band_db"]) for row in own]
    assert float(line["loudest band above 8.9 kHz"]) == pytest.approx(max(loudest), abs=HALF_DIGIT)
    # Two ears of each of three listeners in each split: every row weighs the same.
    share = 100 * statistics.mean(each > 3 for each in loudest)
    assert float(line["ears above +3 dB there, %"]) == pytest.approx(share, abs=HALF_DIGIT)


def test_paired_differences_are_those_of_the_splits(plain):
    rows = text_rows()
    one = expected_splits(rows, "noise_reduction_db", "prime-log")
    other = expected_splits(rows, "noise_reduction_db", "wmmse")
    gains = [one[split] - other[split] for split in one]
    block = plain[1].split(f"### Paired differences over splits {ORIGINAL}")[1]
    line = next(each for each in block.splitlines() if each.startswith("| prime-log | wmmse |"))
    mean, deviation, least, won = line.strip("| ").split(" | ")[2:6]
    assert float(mean) == pytest.approx(statistics.mean(gains), abs=HALF_DIGIT)
    assert float(deviation) == pytest.approx(statistics.stdev(gains), abs=HALF_DIGIT)
    assert float(least) == pytest.approx(min(gains), abs=HALF_DIGIT)
    assert won == f"{sum(gain > 0 for gain in gains)} of 2"


def test_the_papers_numbers_stand_beside_ours_under_its_conditions(whole):
    everything = table_of(whole[1], f"Table 3. Quality and core time {ALL}")
    assert everything["prime + GN(3)"]["paper NR"] == "21.430"
    assert everything["prime + GN(3)"]["paper ms"] == "2.169"
    assert everything["prime + GN(3)"]["ms (GPU A)"] == "2.250"
    assert everything["wmmse"]["ms (CPU B)"] == "5.000"
    assert everything["wmmse"]["ms (GPU A)"] == ""
    assert everything["prime-log"]["paper NR"] == ""
    assert "prime + GN(3, fast)" in everything
    assert "ratio_base_full_band + GN(4)" in everything
    original = table_of(whole[1], f"Table 1. No query updates {ORIGINAL}")
    assert original["prime"]["paper NR"] == "18.576"
    assert original["wmmse_shared"]["paper NR"] == ""
    controls = table_of(whole[1], f"Table 2. Construction and conditioning {ALL}")
    assert (controls["no_skip_mp"]["paper NR"], controls["no_skip_mp"]["paper AMP"]) == ("14.646", "0.093")
    gain = next(line for line in whole[1].splitlines() if line.startswith("| prime | ratio_base_full_band |"))
    assert gain.endswith("| 7.663 | 10 of 10 |")
    assert "fomaml 9.35" in whole[1]


@pytest.mark.usefixtures("no_figures")
def test_designs_on_true_paths_are_marked_wherever_they_stand(whole, tmp_path, rows):
    for heading in ("Table 3. Quality and core time", "All designs", "NR / AMP in dB, split by split"):
        table = table_of(whole[1], f"{heading} {ALL}")
        assert "fxnlms (true paths)" in table
        assert "wmmse" in table
    assert not re.search(r"fxnlms(?! \(true paths\))", whole[1].split("## Tables")[1].replace("fxnlms 19.833", ""))
    own = derived(rows, "another", paths="true")
    assert "| another (true paths) |" in report(tmp_path, pd.concat([rows[rows.method == "wmmse"], own]))


def test_missing_parts_are_said_with_the_command_that_makes_them(plain, whole):
    folder, text = plain
    for name in ("core_time.csv", "weighted_fxlms.csv", "paths.npz"):
        (line,) = [line for line in text.splitlines() if f"No `{name}`" in line]
        assert re.search(r"`python \S.*` writes it", line)
        assert name not in whole[1]
    assert "Table 2. Construction and conditioning: left out" in text
    assert not (folder / "listeners").exists()
    assert not (folder / "quality_against_core_time.png").exists()
    (line,) = [line for line in text.splitlines() if "Methods without rows" in line]
    assert "fomaml" in line
    assert "projected_ratio" not in line


def test_all_figures_and_pages_are_drawn(whole):
    folder, _ = whole
    figures = {
        "noise_reduction_per_band.png",
        "predicted_against_scored.png",
        "gauss_newton_starts.png",
        "quality_against_core_time.png",
        "pareto.png",
    }
    assert {file.name for file in folder.glob("*.png")} == figures
    # person-99 was held out in no split: its page shows paths and filters all the same.
    assert {file.name for file in (folder / "listeners").iterdir()} == {"person-02.png", "person-99.png"}
    for file in folder.rglob("*.png"):
        assert file.stat().st_size > 20_000, file


def test_simulated_data_says_so_in_every_title(tmp_path, rows):
    rows = rows.assign(dataset="simulated", simulated=True)
    report(tmp_path, rows)
    for name in ("tables.md", "splits.md"):
        titles = [line for line in (tmp_path / name).read_text().splitlines() if line.startswith("#")]
        assert len(titles) >= 3
        assert all("SIMULATED" in title for title in titles)
    assert "paper's PANDAR NR" in (tmp_path / "tables.md").read_text()


def test_loose_fits_stand_apart(plain):
    heading = f"Loose fit only: person-23 right {ORIGINAL}"
    line = table_of(plain[1], heading)["wmmse"]
    own = [
        float(row["noise_reduction_db"])
        for row in text_rows()
        if (row["fit"], row["method"], row["k"], row["condition"]) == ("loose", "wmmse", "0", "original")
    ]
    assert float(line["NR dB"]) == pytest.approx(statistics.mean(own), abs=HALF_DIGIT)
    assert f"Slightly loose fit only: person-11 right {ORIGINAL}" in plain[1]


def test_prediction_errors_are_those_of_the_rows(plain):
    line = table_of(plain[1], f"Predicted against scored NR {ORIGINAL}")["prime-log + GN(2)"]
    errors = [
        float(row["predicted_noise_reduction_db"]) - float(row["noise_reduction_db"])
        for row in text_rows()
        if (row["method"], row["k"], row["condition"]) == ("prime-log", "2", "original")
    ]
    assert float(line["predicted - scored NR dB"]) == pytest.approx(statistics.mean(errors), abs=HALF_DIGIT)
    assert float(line["its mean size"]) == pytest.approx(statistics.mean(map(abs, errors)), abs=HALF_DIGIT)
    assert float(line["its largest"]) == pytest.approx(max(map(abs, errors)), abs=HALF_DIGIT)


def test_every_split_is_stated(plain):
    folder, text = plain
    expected = expected_splits(text_rows(), "noise_reduction_db", "wmmse")
    amplification = expected_splits(text_rows(), "amplification_db", "wmmse")
    line = table_of(text, f"NR / AMP in dB, split by split {ORIGINAL}")["wmmse"]
    for split in ("0", "1"):
        noise_reduction, louder = map(float, line[split].split(" / "))
        assert noise_reduction == pytest.approx(expected[split], abs=5.1e-3)
        assert louder == pytest.approx(amplification[split], abs=HALF_DIGIT)
    assert f"| wmmse | 1 | {expected['1']:.3f} |" in (folder / "splits.md").read_text()


def test_windows_are_never_mixed(tmp_path, rows):
    """Rows of two calibration windows in one file: tables and figures of each, means of neither together."""
    other = pd.read_csv(DATA / "pandar-prime.csv", keep_default_na=False, na_values=[""])
    text = report(tmp_path, pd.concat([rows, other]))
    short = table_of(text, "All designs (pandar, original measurements, window 4096)")
    expected = expected_splits(text_rows("pandar-prime"), "noise_reduction_db", "wmmse")
    assert float(short["wmmse"]["NR dB"]) == pytest.approx(expected["0"], abs=HALF_DIGIT)
    assert short["wmmse"]["NR SD over splits"] == ""
    assert "prime-log" not in short
    assert (tmp_path / "noise_reduction_per_band_window4096.png").exists()


def test_a_run_of_originals_only_has_no_other_tables(tmp_path, rows):
    text = report(tmp_path, rows[(rows.condition == "original") & (rows.k == 0)])
    assert ORIGINAL in text
    assert "mean over all conditions" not in text
    assert "No rows with k > 0" in text
    assert not (tmp_path / "gauss_newton_starts.png").exists()


def test_rows_without_seeds_or_predictions_are_enough(tmp_path, rows):
    """A run of designs that nothing is drawn for and nothing predicts."""
    own = rows[(rows.method == "wmmse") & (rows.k == 0) & (rows.condition == "original")]
    optional = ["seed", "profile", "predicted_noise_reduction_db", "predicted_blind_noise_reduction_db"]
    text = report(tmp_path, own.drop(columns=optional))
    assert table_of(text, f"All designs {ORIGINAL}")["wmmse"]["seeds"] == "-"
    assert "Predicted against scored" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: pd.concat([rows, rows[:3]]), "found 3 cases twice"),
        (
            lambda rows: rows.assign(support="person-04; person-23"),
            "found person-23 held out and in its model's support",
        ),
        (lambda rows: rows.drop(columns="control_rms"), "found none named control_rms"),
        (lambda rows: rows.assign(split=float("nan")), "rows without one"),
        (
            lambda rows: rows.assign(dataset=["other"] + ["pandar"] * (len(rows) - 1)),
            r"found \['other', 'pandar'\]",
        ),
    ],
)
def test_rows_that_no_table_may_be_made_from_are_refused(tmp_path, capsys, rows, change, message):
    changed = change(rows)
    with pytest.raises(ReportError, match=message):
        checked(changed)
    changed.to_csv(tmp_path / "cases.csv", index=False)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_prints_the_tables_and_wants_a_folder(tmp_path, capsys, rows):
    assert main([str(tmp_path)]) == 2
    assert "cases.csv" in capsys.readouterr().err
    rows[rows.condition == "original"].to_csv(tmp_path / "cases.csv", index=False)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == (tmp_path / "tables.md").read_text().strip()


@pytest.mark.usefixtures("no_figures")
def test_the_report_says_who_taught_each_split(tmp_path, rows):
    text = report(tmp_path, rows.assign(support=rows["split"].map({0: "person-04 person-05", 1: None})))
    assert "- In support of split 0: person-04 person-05.\n" in text
    assert "In support of split 1" not in text


def test_paths_without_a_primary_are_refused(tmp_path, rows):
    np.savez(tmp_path / "paths.npz", **{"person-02/left/secondary": np.ones(8)})
    with pytest.raises(ReportError, match="no primary and secondary path of person-02, left"):
        report(tmp_path, rows)


def test_a_name_reads_back_as_its_design():
    designs = [Design("prime"), *(Design(m, 2, p) for m in ("prime", "prime-log") for p in ("paper", "fast"))]
    assert [design_named(design_name(*design)) for design in designs] == designs
    assert design_name("prime-log", 2, "fast") == "prime-log + GN(2)"
    assert design_name("prime-log", 2, "paper") == "prime-log + GN(2, paper)"
    assert design_name("wmmse", 3) == "wmmse + GN(3)"
    assert as_design(("prime", 1, "paper", 7)) == Design("prime", 1, "paper")


def test_designs_come_in_the_tables_order():
    mixed = [Design("zzz"), Design("fxlms"), Design("wmmse", 3, "paper"), Design("prime"), Design("wmmse")]
    assert [design.method for design in in_order(mixed)] == ["prime", "wmmse", "wmmse", "fxlms", "zzz"]
    assert in_order(mixed)[1].k == 0
    assert set(STYLES) <= set(METHODS)
    assert {each.design.method for each in PUBLISHED} <= set(METHODS)


def test_published_numbers_agree_among_themselves():
    """The paper's stated gains are the differences of its stated means, to the digits it gives."""
    means = {(p.dataset, p.conditions, p.design): p.noise_reduction_db for p in PUBLISHED}
    n_checked = 0
    for each in PUBLISHED_DIFFERENCES:
        sides = [(each.dataset, each.conditions, design) for design in (each.first, each.second)]
        if all(side in means for side in sides):
            # Two means rounded to 0.01 dB at worst, and the gain itself.
            assert means[sides[0]] - means[sides[1]] == pytest.approx(each.noise_reduction_db, abs=0.0151)
            n_checked += 1
    assert n_checked == len(PUBLISHED_DIFFERENCES) - 1  # no means are given for the modified conditions alone


def test_the_pareto_front_holds_what_nothing_beats():
    generator = np.random.default_rng(0)
    points = [(float(cost), float(gain)) for cost, gain in generator.uniform(size=(60, 2))]
    expected = {one for one in points if not any(o != one and o[0] <= one[0] and o[1] >= one[1] for o in points)}
    assert set(pareto_front(points)) == expected
    assert pareto_front(points) == sorted(expected)


def test_no_axes_holds_more_than_eight_lines():
    designs = [
        Design(method, k, profile if k else "")
        for method in STYLES
        for k in range(4)
        for profile in ("fast", "paper")
    ]
    lines = trails(set(designs))
    assert len(lines) == 8
    assert all([design.k for design in line] == list(range(4)) for line in lines)
    assert all(len({(design.method, design.profile) for design in line[1:]}) == 1 for line in lines)


def test_a_line_has_one_profile_and_begins_with_the_method_itself():
    """Both profiles of WMMSE, so that nothing stands in `fast` beside everything else in `paper`."""
    wmmse, fast, paper = Design("wmmse"), Design("wmmse", 1, "fast"), Design("wmmse", 1, "paper")
    alone, other = Design("fxnlms"), Design("a new one", 1, "fast")
    assert trails([paper, other, fast, alone, wmmse]) == [[wmmse, fast], [wmmse, paper], [alone]]
    assert trails([other]) == [[other]]


def test_a_delayed_impulse_is_flat_at_its_level():
    impulse = np.zeros(2048)
    impulse[100] = 0.5
    frequency, level = smoothed_level_db(impulse)
    assert (frequency[0], 20_000 < frequency[-1] < 24_000) == (20, True)
    # Float64 rounding of cumulated sums over 16385 bins.
    assert level == pytest.approx(np.full(len(level), 20 * math.log10(0.5)), abs=1e-9)


def test_means_are_taken_within_listeners_first():
    """Two ears of one listener weigh as much as one ear of another."""
    rows = pd.DataFrame(
        {
            "method": "m",
            "k": 0,
            "split": [0, 0, 0, 1],
            "seed": 0,
            "listener": ["a", "a", "b", "a"],
            "noise_reduction_db": [10.0, 20.0, 30.0, 40.0],
        }
    )
    means = split_means(rows, ["noise_reduction_db"])
    assert means.noise_reduction_db.tolist() == [22.5, 40.0]


@pytest.mark.usefixtures("no_figures")
def test_rows_of_wearing_are_tabled_and_drawn(tmp_path, rows):
    assert "directions, latency and loops. No `wearing.csv`" in report(tmp_path, rows)
    kept = pd.read_csv(Path(__file__).parents[2] / "studies" / "wearing" / "rows.csv")
    kept.to_csv(tmp_path / "wearing.csv", index=False)
    text = report(tmp_path, rows)
    assert "directions, latency and loops" not in text
    assert (tmp_path / "wearing.png").stat().st_size > 10_000
    own = kept[(kept.case == "directions") & (kept.given == "4 all around") & (kept.ear == "left")]
    shown = next(line for line in text.splitlines() if line.startswith("| 4 all around | left |"))
    found = [float(cell) for cell in shown[2:-2].split(" | ")[2:]]
    expected = own.left_mean_db.mean(), own.left_worst_db.mean(), own.left_worst_db.min()
    assert found == pytest.approx(expected, abs=HALF_DIGIT)
    late = table_of(text, "Latency")["service"]  # the last of its lines: 16 samples
    own = kept[(kept.case == "latency") & (kept.given == "service") & (kept.latency_samples == 16)]
    assert float(late["NR dB"]) == pytest.approx(own.noise_reduction_db.mean(), abs=HALF_DIGIT)
    assert float(late["at most dB"]) == pytest.approx(own.loudest_db.max(), abs=HALF_DIGIT)
    kept.drop(columns="louder_db").to_csv(tmp_path / "wearing.csv", index=False)
    with pytest.raises(ReportError, match=r"no column louder_db; make it with python -m studies\.wearing"):
        report(tmp_path, rows)
