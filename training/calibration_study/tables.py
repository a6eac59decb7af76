"""Means and tables of the study, from its rows alone."""

from __future__ import annotations

import numpy as np
import pandas as pd

from training.calibration_study.rows import SCORES, person_means
from training.calibration_study.settings import DENOISED, Setting, setting_label
from training.report import design_name
from training.report.tables import markdown

PAPER_FIGURES = {"ratio_base_full_band": 10.09, "projected_ratio": 7.09, "wmmse": 21.72}
"""NR in dB, mean over the original and three modified conditions."""

PAPER_ORIGINAL_BASE = 10.686


def paper_distance(rows: pd.DataFrame, figures: dict[str, float]) -> pd.DataFrame:
    """Per setting: NR of the paper's three untrained methods, and the RMS of the differences from `figures`."""
    unrefined = rows[(rows.source == "untrained") & (rows.k == 0) & rows.method.isin(figures)]
    means = person_means(unrefined, ["setting", "method"])["noise_reduction_db"].unstack()[list(figures)]
    return means.assign(distance=np.sqrt(((means - pd.Series(figures)) ** 2).mean(axis=1))).sort_values("distance")


def nearest(rows: pd.DataFrame, count: int) -> list[str]:
    """Settings nearest to the paper on the originals: the base's own figure there, the others' over conditions."""
    figures = {**PAPER_FIGURES, "ratio_base_full_band": PAPER_ORIGINAL_BASE}
    return list(paper_distance(rows[rows.condition == "original"], figures).index[:count])


def all_conditions(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the settings that were calibrated under modified conditions too."""
    modified = set(rows[rows.condition != "original"].setting)
    return rows[rows.setting.isin(modified)]


def against_wmmse(rows: pd.DataFrame) -> pd.DataFrame:
    """Per model, setting and k: NR over that of WMMSE at the same estimates and on the same ears, in dB.

    `change` is that difference less the same model's at its own training window, all else standard; of it,
    `own_change` is the model's NR and `wmmse_change` WMMSE's.
    """
    originals = rows[rows.condition == "original"]
    ears = ["setting", "listener", "ear"]
    wmmse = originals[(originals.method == "wmmse") & (originals.k == 0)].set_index(ears).noise_reduction_db
    own = originals[originals.source != "untrained"].join(wmmse.rename("wmmse_db"), on=ears)
    by = ["method", "k", "source", "training_window", "setting"]
    figures = ["noise_reduction_db", "wmmse_db"]
    persons = own.groupby([*by, "listener"], sort=False)[figures].mean()
    table = persons.groupby(level=by, sort=False).mean().reset_index()
    at_home = table.setting == [Setting(int(window)).name for window in table.training_window]
    home = table[at_home].set_index(["source", "k"])[figures].add_suffix("_home")
    table = table.join(home, on=["source", "k"])
    return table.assign(
        over_wmmse_db=table.noise_reduction_db - table.wmmse_db,
        own_change=table.noise_reduction_db - table.noise_reduction_db_home,
        wmmse_change=table.wmmse_db - table.wmmse_db_home,
        change=lambda each: each.own_change - each.wmmse_change,
    )


def worst_table(over: pd.DataFrame, labels: dict[str, str], count: int = 16) -> pd.DataFrame:
    """The settings where generators lose most against WMMSE at k = 0, by `change`: over models, in dB."""
    grouped = over[over.k == 0].groupby(["method", "setting"], sort=False)
    table = grouped.agg(
        models=("source", "nunique"),
        change=("change", "mean"),
        least=("change", "min"),
        most=("change", "max"),
        own_change=("own_change", "mean"),
        wmmse_change=("wmmse_change", "mean"),
    )
    table = table.sort_values("change").groupby(level="method", sort=False).head(count).reset_index()
    return table.assign(setting=[labels[name] for name in table.setting])


def design_means(rows: pd.DataFrame) -> pd.DataFrame:
    """NR and AMP on the originals per setting and design; trained ones: persons, then the mean over models."""
    chosen = rows[rows.condition == "original"]
    by = ["setting", "source", "method", "k", "profile"]
    chosen = chosen.assign(profile=chosen.profile.fillna(""))
    per_model = person_means(chosen, by).reset_index()
    means = per_model.groupby(["setting", "method", "k", "profile"], sort=False)[list(SCORES)].mean().reset_index()
    means["design"] = [design_title(*each) for each in zip(means.method, means.k, means.profile, strict=True)]
    return means


def design_title(method: str, k: int, profile: str) -> str:
    """A design as a heading of a table."""
    return design_name(method, k, profile).replace("_", " ")


def figure_table(means: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """`NR / AMP` of the designs (columns) at some settings (rows)."""
    cells = [
        f"{nr:.2f} / {amp:.3f}" for nr, amp in zip(means.noise_reduction_db, means.amplification_db, strict=True)
    ]
    return by_setting(means.assign(cell=cells), settings)


def by_setting(cells: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """The column `cell`, a column a design and a row a setting that has any."""
    table = cells.pivot(index="setting", columns="design", values="cell")[list(dict.fromkeys(cells.design))]
    present = [each for each in settings if each.name in table.index]
    table = table.loc[[each.name for each in present]].reset_index(drop=True)
    table.insert(0, "window, change", [setting_label(each) for each in present])
    return table.fillna("")


def over_table(over: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """Mean over models per design: difference from WMMSE, with its change from the standard setting."""
    means = over.groupby(["setting", "method", "k"], sort=False)[["over_wmmse_db", "change"]].mean().reset_index()
    means["design"] = [design_name(m, k) for m, k in zip(means.method, means.k, strict=True)]
    means["cell"] = [f"{o:+.2f} ({c:+.2f})" for o, c in zip(means.over_wmmse_db, means.change, strict=True)]
    return by_setting(means, settings)


def denoising_gains(rows: pd.DataFrame, denoised: pd.DataFrame) -> pd.DataFrame:
    """NR from denoised less NR from plain estimates, per setting and design: persons, then splits or models.

    Untrained designs are compared on the persons outside the split's support, trained ones on those of the model.
    """
    ears = ["setting", "method", "k", "profile", "listener", "ear"]
    plain = rows[rows.condition == "original"].fillna({"profile": ""})
    denoised = denoised.fillna({"profile": ""})
    of_model = denoised.source.isin(plain.source)
    parts = [
        (denoised[~of_model], plain[plain.source == "untrained"], ears),
        (denoised[of_model], plain[plain.source != "untrained"], [*ears, "source"]),
    ]
    by = ["setting", "method", "k", "profile", "source"]
    gains = []
    for own, reference, on in parts:
        joined = own.join(reference.set_index(on).noise_reduction_db.rename("plain_db"), on=on)
        joined = joined.assign(gain_db=joined.noise_reduction_db - joined.plain_db)
        gains.append(joined.groupby([*by, "listener"], sort=False).gain_db.mean())
    per_source = pd.concat(gains).groupby(level=by, sort=False).mean()
    return per_source.groupby(level=by[:-1], sort=False).mean().reset_index()


def denoising_table(gains: pd.DataFrame) -> str:
    """The gains of `denoising_gains`, designs in columns and settings in rows, as Markdown."""
    gains = gains.assign(
        design=[design_title(*each) for each in zip(gains.method, gains.k, gains.profile, strict=True)],
        cell=[f"{gain:+.2f}" for gain in gains.gain_db],
    )
    return markdown(by_setting(gains, DENOISED))
