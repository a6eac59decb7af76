"""The report of the study, from its rows alone: OUT/report.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from studies.calibration.settings import GROUPS, Setting
from training.report import design_name
from training.report.tables import markdown
from training.run_folder import write_atomically

NOTE = (
    "NR / AMP in dB on the original ears: means over persons, then models, by the reference spectrum on the true "
    "paths; in brackets NR over WMMSE's from the same estimates on the same ears. Trained generators: persons "
    "outside their support."
)


def write_report(folder: Path) -> str:
    """Write report.md beside rows.csv; return the report."""
    rows = pd.read_csv(folder / "rows.csv", dtype={"probes": str}, keep_default_na=False, na_values=[""])
    means = design_means(rows)
    parts = ["# Calibration study", NOTE]
    for title, settings in GROUPS.items():
        present = [each for each in settings if each.name in means.index.get_level_values("setting")]
        if present:
            parts += [f"## {title}", markdown(table(means, present))]
    text = "\n\n".join(parts) + "\n"
    write_atomically(folder / "report.md", text)
    return text


def design_means(rows: pd.DataFrame) -> pd.DataFrame:
    """NR, AMP and NR over WMMSE's by setting and design: ears, then persons, then models."""
    ears = ["setting", "listener", "ear"]
    wmmse = rows[(rows.method == "wmmse") & (rows.k == 0)].set_index(ears).noise_reduction_db.rename("wmmse_db")
    rows = rows.join(wmmse, on=ears)
    rows = rows.assign(
        over_wmmse_db=rows.noise_reduction_db - rows.wmmse_db,
        design=[design_name(*each) for each in zip(rows.method, rows.k, rows.profile.fillna(""), strict=True)],
    )
    figures = ["noise_reduction_db", "amplification_db", "over_wmmse_db"]
    persons = rows.groupby(["setting", "design", "source", "listener"], sort=False)[figures].mean()
    models = persons.groupby(level=["setting", "design", "source"], sort=False).mean()
    return models.groupby(level=["setting", "design"], sort=False).mean()


def table(means: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """A line a setting, a column a design: `NR / AMP (NR over WMMSE's)`."""
    cells = [
        f"{each.noise_reduction_db:.2f} / {each.amplification_db:.3f} ({each.over_wmmse_db:+.2f})"
        for each in means.itertuples()
    ]
    found = pd.Series(cells, means.index).unstack("design", fill_value="")
    found = found.loc[[each.name for each in settings], list(dict.fromkeys(means.index.get_level_values("design")))]
    return found.rename_axis("setting").reset_index()
