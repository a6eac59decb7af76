"""The published rows are what the code computes, and the page states what they hold."""

import re
from pathlib import Path

import pandas as pd
import pytest

from studies import Request, computed, everyday, foreign, mistakes
from studies.results import main, published_rows, tables
from training.datasets.noise import simulated_noise
from training.datasets.pandar import read_pandar
from training.datasets.simulated import simulate_listeners

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
# Further updates of the code since the rows were computed may cost or gain as much.
TOLERANCE_DB = 0.05


def lines_of(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of the page."""
    section = PAGE.split(f"\n## {heading}\n")[1]
    table = re.search(r"---\|.*\n((?:.* \| .*\n)+)", section)
    assert table is not None
    return [line.split(" | ") for line in table.group(1).splitlines()]


@pytest.mark.measured
def test_everyday_ears_reach_published_noise_reduction(measured_data: Path) -> None:
    """Both ears of a person with white noise, whose draws do not depend on the recordings."""
    published, pairs = published_rows("everyday"), read_pandar(measured_data).pairs[:2]
    rows = [row for n, pair in enumerate(pairs) for row in everyday.rows_of(n, pair, simulated_noise(), ["white"])]
    chosen = published[published.ear.isin([pair.name for pair in pairs]) & (published.probe == "white")]
    columns = ["true_db", "said_db", "amp_db"]
    found, expected = everyday.table(pd.DataFrame(rows))[columns], everyday.table(chosen)[columns]
    pd.testing.assert_frame_equal(found, expected, rtol=0, atol=TOLERANCE_DB, check_like=True)


def test_foreign_systems_reach_published_noise_reduction() -> None:
    """One of each kind."""
    every = list(foreign.systems(5, 0, None))
    rows = pd.DataFrame([row for kind, name, *paths in every for row in foreign.rows_of(kind, name, *paths)])
    published = published_rows("foreign")
    published = published[published.system.isin(rows.system)]
    columns = ["true_db", "predicted_db", "wmmse_db", "converged_db"]
    found, expected = (item.groupby(["way", "k"])[columns].mean() for item in (rows, published))
    pd.testing.assert_frame_equal(found, expected, rtol=0, atol=TOLERANCE_DB, check_index_type=False)


def test_page_shows_everyday_rows() -> None:
    table = everyday.table(published_rows("everyday"))
    for cells in lines_of("What each update brings"):
        probe, snr = cells[0].split(", ")
        line = table.loc[probe.replace("-", "_"), 300.0 if snr == "none" else float(snr.split()[0])]
        wmmse, best = line.loc["wmmse", 0], line.loc["prime", 3]
        reached = "/".join(f"{line.loc['prime', k].true_db:.1f}" for k in (0, 1, 3))
        rest = f"{best.said_db:.1f}", f"{best.within:.2f}", f"{best.passed:.2f}"
        assert cells[1:] == [f"{wmmse.true_db:.1f}", reached, *rest]


def test_page_shows_rows_of_held_out_persons() -> None:
    table = tables("pandar-8192", published_rows("pandar-8192"))["mean over all conditions, window 8192"]
    table = table.set_index("design")
    designs = {
        "WMMSE, direct": ["wmmse"],
        "WMMSE + GN(1/3, fast)": ["wmmse + GN(1, fast)", "wmmse + GN(3, fast)"],
        "`fir_wiener` (untrained)": ["fir_wiener"],
        "`fir_wiener` + GN(1/3, fast)": ["fir_wiener + GN(1, fast)", "fir_wiener + GN(3, fast)"],
        "`prime-log`, + GN(1/3, fast)": ["prime-log", "prime-log + GN(1)", "prime-log + GN(3)"],
        "FxLMS (true paths)*": ["fxlms (true paths)"],
    }
    lines = {cells[0]: cells[1:] for cells in lines_of("Held-out persons")}
    for name, items in designs.items():
        chosen = table.loc[items]
        assert re.split(r"/|, ", lines[name][0]) == [f"{value:.2f}" for value in chosen["NR dB"]], name
        assert lines[name][1:] == [f"{chosen['worst ear'].iloc[-1]:.2f}", f"{chosen['AMP dB'].max():.2f}"], name


def test_finished_cases_are_kept(tmp_path: Path) -> None:
    calls: list[str] = []

    def work(name: str) -> list[dict[str, object]]:
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return [{"value": 1.23456}]

    cases = {name: lambda name=name: work(name) for name in ("a", "b")}
    with pytest.raises(KeyboardInterrupt):
        computed(cases, tmp_path / "rows.csv", 1)
    rows = computed(cases, tmp_path / "rows.csv", 1)
    assert calls == ["a", "b", "b"]
    assert rows[["case", "value"]].values.tolist() == [["a", 1.235], ["b", 1.235]]


def test_mistakes_in_paths_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulated ears are another device; what physics shows is found on simulated systems."""
    monkeypatch.setattr(mistakes, "N_SYSTEMS", 1)
    monkeypatch.setattr(mistakes, "PHYSICAL", ("microphone inverted",))
    cases = mistakes.cases(Request(simulate_listeners(1), simulated_noise(), tmp_path))
    rows = pd.DataFrame(list(cases.values())[-1]()).set_index(["endpoint", "mistake"])
    assert not rows.loc["generic", "right"].n_found
    assert rows.loc["generic", "microphone inverted"].n_found
    assert rows.loc["calibrate", "another device"].n_found + rows.loc["calibrate", "another device"].n_other


def test_mistaken_request_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["everyday"])
    assert "--data" in capsys.readouterr().err
