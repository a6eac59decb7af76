"""Tables and figures of an experiment from its rows alone: `python -m training.report RUN [OUT]`.

RUN is the folder of a run or a file like its `rows.parquet` (`docs/results/*.parquet`). `tables.md` and the figures
are written into OUT (default: the folder). A section is what one table shows: rows of one window, one probe and SNR
(where a run has several), and one group of conditions.

Means are the paper's: over ears, conditions and seeds within a listener, over listeners within a split, over
splits; SD is the sample standard deviation over split means.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from training.methods import METHODS
from training.rows import RunError, by_split, read_rows, split_means

# Columns of a filter's figures and their headings in tables.
FIGURES = {
    "noise_reduction_db": "NR dB",
    "amplification_db": "AMP dB",
    "wide_amplification_db": "AMP 25-20k dB",
    "out_of_band_low_db": "low dB",
    "out_of_band_high_db": "high dB",
    "max_gain_db": "max gain dB",
    "control_rms": "RMS",
    "late_cut_noise_reduction_db": "NR late cut dB",
}
ERRORS = {"error_db": "predicted - scored NR", "miss_db": "its mean size"}
CASE = ["listener", "ear", "condition"]
KEY = ["design", "window", "split", "seed", *CASE, "probe", "snr_db"]
# Columns that rows may lack.
PREDICTION = "predicted_noise_reduction_db"
OPTIONAL = ("seed", "probe", "snr_db", "support", "support_recordings", "paths", "core_ms", PREDICTION)
# Probes of a run by recording that excite all bands.
BROAD_BAND = ("white", "pink", "pool")
# Figures that the paper states: columns of paper.csv and their headings.
PAPER = {"noise_reduction_db": "paper NR", "noise_reduction_sd_db": "paper SD", "amplification_db": "paper AMP"}
PAPER |= {"control_rms": "paper RMS", "core_ms": "paper ms"}

NOTE = (
    "NR: mean over the one-third octaves 50 Hz-5 kHz. AMP: 50 Hz-8 kHz, quieter bands counted as 0 per block. "
    "low, high: change of level in 22.4-44.7 Hz and 8.9-22.4 kHz, positive is louder. late cut: scored with the "
    "primary's taps from 2048 on set to zero. Means over ears, conditions and seeds within a listener, over "
    "listeners within a split, over splits; SD: sample standard deviation over split means. cases: ears times "
    "conditions. No listener and no recording was in its model's support. "
    "GN(k): k updates of the `fast` profile for prime-log, of the `paper` profile for all others, unless named. "
    "(true paths): adapted on the query's true paths, so not comparable with the other lines. "
    "ms: median over ears on the device of the rows. paper: 23 PANDAR persons, ten splits, three seeds, an RTX 5090. "
    "Differences are of designs on the same cases, first minus second; seeds are averaged."
)
# Designs whose differences are tabulated, beside the paper's pairs.
PAIRS = [
    *pairwise(("prime-log", "wmmse", "fir_wiener")),
    ("prime-log", "fir_wiener"),
    ("prime-log + GN(1)", "wmmse"),
]
PAIRS += [(f"prime-log + GN({k})", f"{start} + GN({k}, fast)") for start in ("wmmse", "fir_wiener") for k in (1, 3)]


def write_report(run: Path, out: Path | None = None) -> str:
    """Write the tables and figures of a run.

    Parameters
    ----------
    run
        Folder of a run, or a file like its `rows.parquet`.
    out
        Where to write; None: the folder of the run.

    Returns
    -------
    str
        The text of `tables.md`.

    Raises
    ------
    RunError
        There are no rows that a report can be made of.
    """
    from training.figures import draw  # imported late: matplotlib takes a second

    rows, out = checked(by_split(read_rows(run))), out or (run if run.is_dir() else run.parent)
    out.mkdir(parents=True, exist_ok=True)
    simulated = " (SIMULATED data)" if rows.simulated.any() else ""
    parts = [f"# {rows.dataset.iloc[0]}, listeners held out{simulated}", NOTE]
    drawn = {}
    for title, section in sections(rows):
        parts += [f"## {title}{simulated}", markdown(summary(section))]
        if len(table := differences(section)):
            parts += [f"### Paired differences, {title}", markdown(table)]
        if section.probe.isna().all():
            drawn[title] = section
    text = "\n\n".join(parts) + "\n"
    (out / "tables.md").write_text(text)
    draw(drawn, out)
    return text


def checked(rows: pd.DataFrame) -> pd.DataFrame:
    """Check rows, and add the name of the design and the error of the prediction.

    Raises
    ------
    RunError
        A column is missing, two rows stand for one case, the rows are of several data sets or of none, or a
        listener or a probe was in its model's support.
    """
    rows = with_design(rows.reindex(columns=[*rows.columns, *set(OPTIONAL).difference(rows.columns)]))
    if missing := sorted({*KEY, "dataset", "simulated", "worst_high_band_db", *FIGURES}.difference(rows.columns)):
        raise RunError(f"columns: found none named {', '.join(missing)}; let the run finish a method")
    if rows.dataset.nunique() != 1:
        raise RunError(f"dataset: found {sorted(rows.dataset.unique())}, expected one")
    twice = rows[rows.duplicated(KEY)]
    if len(twice):
        raise RunError(f"rows: found {len(twice)} cases twice, the first {dict(twice.iloc[0][KEY])}")
    for case, known in (("listener", "support"), ("probe", "support_recordings")):
        for name, support in rows[[case, known]].dropna().drop_duplicates().itertuples(index=False, name=None):
            if name in re.findall(r"[\w.-]+", support):
                raise RunError(f"{known}: found {name} held out and in its model's support ({support})")
    error = rows[PREDICTION].astype(float) - rows.noise_reduction_db
    return rows.assign(error_db=error, miss_db=error.abs())


def with_design(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the column `design`, an ordered category: `prime-log + GN(2)`, `wmmse + GN(3, fast)`, `fxlms (true paths)`.

    A profile is named if it is not the method's default. Designs are in the order of METHODS, then by profile and
    number of updates; other methods follow.
    """
    profile = (", " + rows.profile).where(~has_default_profile(rows), "")
    name = rows.method + (" + GN(" + rows.k.astype(int).astype(str) + profile + ")").where(rows.k > 0, "")
    if "paths" in rows:
        name += pd.Series(" (true paths)", rows.index).where(rows.paths == "true", "")
    place = rows.method.map({method: n for n, method in enumerate(METHODS)}).fillna(len(METHODS))
    order = rows.assign(design=name, place=place).sort_values(["place", "method", "profile", "k"])
    return rows.assign(design=pd.Categorical(name, order.design.unique(), ordered=True))


def has_default_profile(rows: pd.DataFrame) -> pd.Series:
    """Return whether updates are of the method's default profile: `fast` for prime-log, else `paper`."""
    return rows.profile == np.where(rows.method.str.startswith("prime-log"), "fast", "paper")


def sections(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield title and rows: per window, probe and SNR all conditions, original and modified measurements."""
    for (window, probe, snr_db), group in rows.groupby(["window", "probe", "snr_db"], dropna=False):
        titles = [f"window {window}"] + ([f"probe {probe}"] if isinstance(probe, str) else [])
        titles += [f"SNR {snr_db:g} dB"] if snr_db == snr_db else []
        original = group.condition == "original"
        parts = {"mean over all conditions": group, "original measurements": group[original]}
        parts["modified secondary paths"] = group[~original]
        if original.all() or not original.any():
            parts.pop("mean over all conditions")
        for conditions, section in parts.items():
            if len(section):
                yield ", ".join([conditions, *titles]), section


def summary(section: pd.DataFrame) -> pd.DataFrame:
    """Tabulate designs: means over splits, worst ear, errors of predictions, number of cases, the paper's figures.

    An unfinished method may have different numbers of seeds per split; one without randomness has none.
    """
    splits = split_means(section, [*FIGURES, *ERRORS]).groupby("design", observed=True)
    by = section.groupby("design", observed=True)
    table = splits.mean().rename(columns=FIGURES | ERRORS)
    table.insert(1, "SD", splits.noise_reduction_db.std())
    table.insert(2, "worst ear", by.noise_reduction_db.min())
    table["loudest band above 8.9 kHz"] = by.worst_high_band_db.max()
    table["ms"] = by.core_ms.median()
    table["splits"] = by.split.nunique()
    seeds = section.groupby(["design", "split"], observed=True).seed.nunique().groupby("design", observed=True)
    table["seeds"] = seeds.min().astype(str) + np.where(
        seeds.min() < seeds.max(), " to " + seeds.max().astype(str), ""
    )
    table["listeners"] = by.listener.nunique()
    table["cases"] = section.drop_duplicates(["design", *CASE]).groupby("design", observed=True).size()
    paper = paper_results(section)
    paper = paper[paper.minus.isna()].set_index("design")[list(PAPER)].rename(columns=PAPER)
    return table.join(paper.set_axis(paper.index.astype(str))).dropna(axis=1, how="all").reset_index()


def differences(section: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the paired differences of noise reduction over splits."""
    index = ["split", *CASE]
    cases = section.pivot_table("noise_reduction_db", index, "design", observed=True)
    paper = paper_results(section).dropna(subset="minus").set_index(["design", "minus"])
    lines = []
    for first, second in dict.fromkeys([*PAIRS, *paper.index]):
        if {first, second} <= set(cases):
            gain = (cases[first] - cases[second]).dropna()
            gain = gain.groupby(["split", "listener"]).mean().groupby("split").mean()
            line = {"first": first, "second": second, "NR dB": gain.mean(), "SD": gain.std(), "least": gain.min()}
            lines.append(line | {"splits won": f"{(gain > 0).sum()} of {len(gain)}"})
    table = pd.DataFrame(lines, columns=["first", "second", "NR dB", "SD", "least", "splits won"])
    paper = paper[["noise_reduction_db", "splits_won"]].set_axis(["paper NR", "paper splits won"], axis=1)
    return table.join(paper, ["first", "second"])


def paper_results(section: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's figures of a section by `design`, and its differences by `design` and `minus`."""
    with (files("training.baselines") / "paper.csv").open() as file:
        table = pd.read_csv(file).fillna({"profile": "", "minus_profile": "", "minus_k": 0})
    minus = table[["minus_method", "minus_k", "minus_profile"]].set_axis(["method", "k", "profile"], axis=1)
    table["minus"] = with_design(minus.dropna()).design.astype(str)
    table["design"] = with_design(table).design.astype(str)
    true_paths = [name for name, method in METHODS.items() if method.true_paths]
    table["design"] += np.where(table.method.isin(true_paths), " (true paths)", "")
    original, modified = (section.condition == "original").any(), (section.condition != "original").any()
    conditions = "all" if original and modified else "original" if original else "modified"
    dataset = section.dataset.iloc[0].replace("simulated", "pandar")
    return table[(table.dataset == dataset) & (table.conditions == conditions)]


def mean_figures(*parts: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Average the figures on original measurements for a manifest, by design.

    Designs are starts, a generator's updates in its default profile, and WMMSE with three updates of `paper`; of
    several probes, broad-band ones without noise.
    """
    rows = pd.concat(parts, ignore_index=True)
    if "probe" in rows:
        rows = rows[rows.probe.isin(BROAD_BAND) & rows.snr_db.isna()]
    generators = [name for name, method in METHODS.items() if method.recipe is not None]
    compared = rows.method.isin(generators) | ((rows.method == "wmmse") & (rows.k == 3))
    rows = rows[(rows.condition == "original") & ((rows.k == 0) | (has_default_profile(rows) & compared))]
    means = split_means(with_design(rows.assign(split=0)), list(FIGURES)).droplevel("split").round(4)
    return {str(design): dict(figures) for design, figures in means.T.items()}


def markdown(table: pd.DataFrame) -> str:
    """Format a Markdown table; numbers with three decimals."""
    cells = table.astype(object).map(lambda value: f"{value:.3f}" if isinstance(value, float) else str(value))
    lines = [
        list(map(str, table.columns)),
        ["---"] * len(table.columns),
        *cells.where(table.notna(), "").to_numpy(),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Write the report and print its tables. Without usable rows, print one line and return 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    request = parser.parse_args(arguments)
    try:
        print(write_report(request.run, request.out))
    except (RunError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
