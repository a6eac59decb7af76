"""The tables of a run by recording, from rows that a hand can check; and the command itself."""

import pandas as pd
import pytest

from model_store.store import ModelStore
from tests.training.conftest import command
from training import probes, run_data
from training.report import read_rows
from training.report.by_recording import by_recording
from training.report.rows import ReportError, checked
from training.run_splits import main

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
def rows() -> pd.DataFrame:
    own = {"seed": 0, "support": "c d", "support_recordings": "city storm"}
    made = []
    for probe, gains in (("white", (1.0, 2.0)), ("rain", (-4.0, 0.5)), ("wind", (1.0, 1.0))):
        for listener, gain in zip(LISTENERS, gains, strict=True):
            made.append(row("wmmse", listener, probe, 20.0, 19.0))
            made.append(row("wmmse", listener, probe, 20.5, 19.0, k=3, profile="paper"))
            # The prediction sees what is lost, and half a decibel too little of what is gained.
            made.append(row("prime-log", listener, probe, 20.0 + gain, 18.5 + gain, **own))
    return pd.DataFrame(made)


def line(text: str, heading: str, probe: str) -> dict[str, str]:
    table = text.split(f"### {heading}")[1].split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in each.strip("|").split("|")] for each in table]
    (found,) = [each for each in cells[2:] if each[0] == probe]
    return dict(zip([f"{place} {name}" for place, name in enumerate(cells[0])], found, strict=True))


def test_gains_are_those_of_the_rows_and_each_recording_alone_is_a_case(rows: pd.DataFrame) -> None:
    heading = "prime-log against WMMSE"
    text = by_recording(checked(rows))
    single = list(line(text, heading, "single recording").values())
    # Listener a: - 4 and 1, b: 0.5 and 1. With the fallback the - 4 becomes 0.
    assert [float(cell) for cell in single[2:7]] == pytest.approx([-0.375, -4.0, 0.625, 0.0, 25.0], abs=1e-3)
    assert [float(cell) for cell in single[7:9]] == pytest.approx([-0.875, -4.5], abs=1e-3)
    broad = list(line(text, heading, "broad-band").values())
    assert [float(cell) for cell in broad[2:4]] == pytest.approx([1.5, 1.0], abs=1e-3)
    assert [float(cell) for cell in broad[9:12]] == pytest.approx([-1.5, 1.5, 1.5], abs=1e-3)
    figures = line(text, "NR / AMP", "white")
    assert figures["2 prime-log"] == "21.50 / 0.010"


def test_a_probe_that_trained_is_refused(rows: pd.DataFrame) -> None:
    leaked = rows.assign(support_recordings=rows.support_recordings.where(rows.seed.isna(), "rain storm"))
    with pytest.raises(ReportError, match="support_recordings: found rain held out and in its model's support"):
        checked(leaked)


def test_the_same_case_with_another_probe_is_another_case(rows: pd.DataFrame) -> None:
    assert len(checked(rows)) == len(rows)
    with pytest.raises(ReportError, match="cases twice"):
        checked(rows.assign(probe="white"))


@pytest.mark.usefixtures("opened_once")
def test_the_command_holds_out_persons_and_recordings(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(probes, "SNRS_DB", (None,))
    monkeypatch.setattr(run_data, "QUICK_QUERIES", 1)
    options = ("--protocol", "by-recording", "--methods", "wmmse,prime-log", "--updates", "2")
    assert main(command(tmp_path, *options)) == 0
    printed = capsys.readouterr().out
    assert "prime-log against WMMSE from the same estimates" in printed
    rows = read_rows(tmp_path / "out")
    support = rows.support.iloc[0].split(), rows.support_recordings.iloc[0].split()
    assert not set(rows.listener) & set(support[0])
    assert not set(rows.probe) & set(support[1])
    assert rows.probe.nunique() == 8
    assert set(zip(rows.k, rows.profile.fillna(""), strict=True)) == {
        (0, ""),
        (3, "paper"),
        (1, "fast"),
        (3, "fast"),
    }
    # Two ears, eight probes, two methods, four designs.
    assert len(rows) == 2 * 8 * 2 * 4
    manifest = ModelStore(tmp_path / "store", include_bundled=False).manifest(
        "simulated-by-recording-prime-log-split00-seed0"
    )
    assert set(manifest.support) == set(support[0])
    assert main([*command(tmp_path, *options), "--methods", "weighted_fxlms"]) == 2
    assert "weighted_fxlms: only by person and with the paper's calibration" in capsys.readouterr().err
