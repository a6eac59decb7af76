"""Tables and figures of an experiment from its rows alone: `python -m training.report RUN [OUT]`.

RUN is the folder of a run or a file like its `rows.parquet` (`docs/results/*.parquet`). `tables.md` and the figures
are written into OUT (default: the folder). From top to bottom: rows -> checked rows -> sections (one
window, one group of conditions) -> tables -> figures.

Means are the paper's: over ears, conditions and seeds within a listener, over listeners within a split, over
splits; SD is the sample standard deviation over split means.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from prime_anc.measure.estimate import REGULARISATION
from training.methods import METHODS
from training.rows import (
    BROAD_BAND,
    COLUMNS,
    PER_NOISE,
    DesignRow,
    RunError,
    as_design,
    by_split,
    default_profile,
    read_rows,
    split_means,
)

DESIGN = ["method", "k", "profile"]
CASE = ["listener", "ear", "condition"]
KEY = [*DESIGN, "window", "split", "seed", *CASE, "probe", "snr_db"]
OPTIONAL = (
    *("seed", "probe", "snr_db", "support", "support_recordings", "paths", "core_ms", "device", "regularisation"),
    *("predicted_noise_reduction_db", "predicted_blind_noise_reduction_db"),
)
# A band above 8.9 kHz that is louder by more than this marks an ear as loud above the scored bands.
LOUD_HIGH_BAND_DB = 3.0
# The service falls back on WMMSE if it is predicted to be better by more than this.
FALLBACK_MARGIN_DB = 0.5

NOTE = (
    "NR: mean over the one-third octaves 50 Hz-5 kHz. AMP: 50 Hz-8 kHz, quieter bands counted as 0 per block. "
    "low, high: change of level in 22.4-44.7 Hz and 8.9-22.4 kHz, positive is louder. late cut: scored with the "
    "primary's taps from 2048 on set to zero. Means over ears, conditions and seeds within a listener, over "
    "listeners within a split, over splits; SD: sample standard deviation over split means. cases: ears times "
    "conditions. No listener was in its model's support. "
    "GN(k): k updates of the `fast` profile for prime-log, of the `paper` profile for all others, unless named. "
    "(true paths): adapted on the query's true paths, so not comparable with the other lines. "
    "ms: median over ears. paper: 23 PANDAR persons, ten splits, three seeds, an RTX 5090."
)
BY_RECORDING_NOTE = (
    "Filters are scored on the held-out recordings, white and pink. pool: the held-out recordings together; single "
    "recording: one of them alone; airplane_like: nothing above 8 kHz; broad-band: white, pink and pool. noise: "
    "SNR at the error microphone. Means over ears and probes within a listener, over listeners within a split, "
    "over splits; worst ear: of all. with fallback: WMMSE where it is predicted to be better by more than "
    f"{FALLBACK_MARGIN_DB} dB. No listener and no recording was in its model's support."
)

PAPER_COLUMNS = {
    "noise_reduction_db": "NR", "noise_reduction_sd_db": "SD", "amplification_db": "AMP", "control_rms": "RMS",
    "core_ms": "ms",
}  # fmt: skip
TABLE_1 = (
    "prime_no_interpolation", "prime", "prime-log_no_interpolation", "prime-log_minimum_phase", "prime-log",
    "ratio_base_full_band", "ratio_base_held_band", "fir_wiener", "projected_ratio", "fomaml", "selective",
    "generative", "wmmse_shared", "e2e_cfg",
)  # fmt: skip
CONTROLS = (
    "skip_mp", "skip_mp_phase", "no_skip_mp", "no_skip_mp_phase", "prime_shuffled_phase", "prime_path_independent",
)  # fmt: skip
TABLE_3 = (
    "prime", "fir_wiener", "prime-log", "wmmse", "wmmse_fast", *(f"wmmse_pcg_{2**n}" for n in range(5, 12)),
    "iterative_fir", "fxlms", "fxnlms",
)  # fmt: skip
# Title, published figures, which designs, and methods of which one is needed.
PAPER_TABLES: tuple[tuple[str, tuple[str, ...], Callable[[DesignRow], bool], tuple[str, ...]], ...] = (
    (
        "Table 1. No query updates",
        ("noise_reduction_db", "noise_reduction_sd_db"),
        lambda design: design.k == 0 and design.method in TABLE_1,
        (),
    ),
    (
        "Table 2. Construction and conditioning",
        ("noise_reduction_db", "amplification_db"),
        lambda design: design.k == 0 and design.method in ("prime", *CONTROLS),
        CONTROLS,
    ),
    (
        "Table 3. Quality and core time",
        ("noise_reduction_db", "amplification_db", "control_rms", "core_ms"),
        lambda design: design.method in TABLE_3 or (design.method.startswith("ratio_base") and design.k == 4),
        (),
    ),
)

PAIRS = (
    (DesignRow("prime-log"), DesignRow("wmmse")),
    (DesignRow("prime-log", 1, "fast"), DesignRow("wmmse")),
    (DesignRow("prime-log", 1, "fast"), DesignRow("wmmse", 3, "paper")),
    (DesignRow("prime-log", 3, "fast"), DesignRow("wmmse", 3, "paper")),
    (DesignRow("prime-log", 1, "fast"), DesignRow("wmmse", 1, "fast")),
    (DesignRow("prime-log", 1, "fast"), DesignRow("wmmse", 3, "fast")),
    (DesignRow("prime-log", 3, "fast"), DesignRow("wmmse", 3, "fast")),
    (DesignRow("prime-log", 1, "fast"), DesignRow("fir_wiener", 1, "fast")),
    (DesignRow("prime-log", 3, "fast"), DesignRow("fir_wiener", 3, "fast")),
    (DesignRow("prime-log"), DesignRow("fir_wiener")),
    (DesignRow("prime"), DesignRow("ratio_base_full_band")),
    (DesignRow("prime"), DesignRow("prime_no_interpolation")),
    (DesignRow("prime", 3, "paper"), DesignRow("ratio_base_full_band", 4, "paper")),
    (DesignRow("skip_mp"), DesignRow("no_skip_mp")),
    (DesignRow("skip_mp_phase"), DesignRow("no_skip_mp_phase")),
    (DesignRow("prime"), DesignRow("prime_shuffled_phase")),
    (DesignRow("prime"), DesignRow("prime_path_independent")),
)


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
    from training import figures  # imported late: matplotlib takes a second

    rows, out = checked(by_split(read_rows(run))), out or (run if run.is_dir() else run.parent)
    out.mkdir(parents=True, exist_ok=True)
    simulated = " (SIMULATED data)" if rows.simulated.any() else ""
    dataset = rows.dataset.iloc[0]
    if rows.probe.notna().any():
        title = f"# {dataset}, listeners and recordings held out{simulated}"
        text = "\n\n".join([title, BY_RECORDING_NOTE, supports(rows), by_recording(rows)]) + "\n"
        (out / "tables.md").write_text(text)
        return text
    found = list(sections(rows))
    parts = [f"# {dataset}, listeners held out{simulated}", NOTE, supports(rows), absent(rows)]
    for section in found:
        parts += [f"## {section.title('Tables')}", *section_tables(section)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    (out / "tables.md").write_text(text)
    figures.draw(found, rows[rows.method == PER_NOISE], out)
    return text


def checked(rows: pd.DataFrame) -> pd.DataFrame:
    """Check rows and add prediction errors and loud high bands.

    Raises
    ------
    RunError
        A column is missing, two rows stand for one case, the rows are of several data sets or of none, or a
        listener or a probe was in its model's support.
    """
    rows = rows.assign(**{name: float("nan") for name in OPTIONAL if name not in rows})
    required = {*KEY, "dataset", "simulated", "fit", "worst_high_band_db", *COLUMNS}
    if missing := sorted(required.difference(rows.columns)):
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
    error = rows.predicted_noise_reduction_db - rows.noise_reduction_db
    return rows.assign(
        prediction_error_db=error,
        prediction_miss_db=error.abs(),
        blind_miss_db=(rows.predicted_blind_noise_reduction_db - rows.noise_reduction_db).abs(),
        loud_high_band=(rows.worst_high_band_db > LOUD_HIGH_BAND_DB).astype(float),
    )


@dataclass(frozen=True)
class Section:
    """Rows of one table: one window, one group of conditions (`all`, `original`, `modified`)."""

    window: int
    conditions: str
    rows: pd.DataFrame

    @cached_property
    def designs(self) -> dict[DesignRow, pd.DataFrame]:
        """Return the rows per design, in the order of METHODS."""
        found = {as_design(key): group for key, group in self.rows.groupby(DESIGN, sort=False)}
        return {item: found[item] for item in in_order(found)}

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return str(self.rows.dataset.iloc[0])

    def title(self, what: str) -> str:
        """Return a title with data set, conditions and calibration; it states if the data are simulated."""
        names = ["SIMULATED data"] if self.rows.simulated.any() else []
        names += [self.dataset] if self.dataset != "simulated" else []
        unusual = sorted(set(self.rows.regularisation.dropna()) - {REGULARISATION})
        calibration = f"window {self.window}" + "".join(f", regularisation {item:.0e}" for item in unusual)
        conditions = {
            "all": "mean over all conditions",
            "original": "original measurements",
            "modified": "modified secondary paths",
        }[self.conditions]
        return f"{what} ({', '.join([*names, conditions, calibration])})"

    def name(self, design: DesignRow) -> str:
        """Name of a design, marked if it used the query's true paths."""
        return design.name + (" (true paths)" if on_true_paths(design, self.designs[design]) else "")

    def means(self, columns: Sequence[str]) -> tuple[dict[DesignRow, pd.Series], dict[DesignRow, pd.Series]]:
        """Compute mean and sample SD of the columns over splits, by design."""
        grouped = split_means(self.rows, list(columns)).groupby(level=DESIGN, sort=False)
        mean, deviation = (
            {as_design(key): line for key, line in table.iterrows()} for table in (grouped.mean(), grouped.std())
        )
        return mean, deviation


def sections(rows: pd.DataFrame) -> Iterator[Section]:
    """Yield per window all conditions, original and modified measurements, if there are such rows."""
    for window, group in rows[rows.method != PER_NOISE].groupby("window"):
        original = group.condition == "original"
        groups = {"all": group, "original": group[original], "modified": group[~original]}
        if original.all() or not original.any():
            groups.pop("all")
        for conditions, chosen in groups.items():
            if len(chosen):
                yield Section(int(str(window)), conditions, chosen)


def in_order(designs: Iterable[DesignRow]) -> list[DesignRow]:
    """Sort designs in the order of METHODS, then by profile and updates; other methods follow by name."""
    known = list(METHODS)
    return sorted(
        designs,
        key=lambda d: (known.index(d.method) if d.method in known else len(known), d.method, d.profile, d.k),
    )


def on_true_paths(design: DesignRow, group: pd.DataFrame) -> bool:
    """Return whether a design used the query's true paths, according to its rows or its method."""
    method = METHODS.get(design.method)
    return bool((group.paths == "true").any()) or (method is not None and method.true_paths)


def section_tables(section: Section) -> list[str]:
    """Return all tables of a section, in order."""
    found = [
        *(paper_table(section, *table) for table in PAPER_TABLES),
        starts(section),
        pairs(section),
        f"### {section.title('All designs')}\n\n{markdown(quality(section))}",
        predictions(section),
        by_each_split(section),
    ]
    return [part for part in found if part]


def supports(rows: pd.DataFrame) -> str:
    """List the supports of the splits; empty if nothing was trained."""
    columns = [name for name in ("split", "support", "support_recordings") if rows[name].notna().any()]
    found = rows[columns].dropna().drop_duplicates().sort_values("split")
    if "support" not in columns:
        return ""
    return "\n".join(
        f"- In support of split {n}: {', '.join(names)}." for n, *names in found.itertuples(index=False)
    )


def absent(rows: pd.DataFrame) -> str:
    """Name the methods without rows."""
    names = [method for method in METHODS if method not in set(rows.method)]
    if not names:
        return ""
    return (
        f"- Methods without rows: {', '.join(names)}. `python -m training.run_splits ... --methods NAME` adds them."
    )


def paper_table(
    section: Section, title: str, columns: Sequence[str], holds: Callable[[DesignRow], bool], needs: Sequence[str]
) -> str | None:
    """Compose one of the paper's tables beside these results; None if the rows have none of its designs."""
    ours = [design for design in section.designs if holds(design)]
    if not ours or (needs and not {design.method for design in ours} & set(needs)):
        return None
    theirs = paper_results(section, differences=False)
    theirs = {design: line for design, line in theirs.items() if holds(design)}
    shown = [name for name in columns if any(not math.isnan(line[name]) for line in theirs.values())]
    source = "paper" if section.dataset != "simulated" else "paper's PANDAR"
    lines = [
        {"design": section.name(design)}
        | {f"{source} {PAPER_COLUMNS[name]}": theirs[design][name] if design in theirs else None for name in shown}
        for design in ours
    ]
    table = pd.DataFrame(lines).join(quality(section, ours).drop(columns="design"))
    if "core_ms" in columns:
        times = section.rows.dropna(subset=["core_ms"]).groupby([*DESIGN, "device"]).core_ms.median()
        for device, group in times.groupby(level="device"):
            by_design = {as_design(key): value for key, value in group.items()}
            table[f"ms ({device})"] = [by_design.get(design) for design in ours]
    parts = [f"### {section.title(title)}", markdown(table)]
    if unmatched := in_order(set(theirs).difference(ours)):
        listed = ", ".join(f"{design.name} {theirs[design]['noise_reduction_db']:g}" for design in unmatched)
        parts.append(f"In the paper's table and not in these rows (its NR, dB): {listed}.")
    return "\n\n".join(parts)


def paper_results(section: Section, differences: bool) -> dict[Any, Any]:
    """Return the paper's lines for a section, by design, or its differences by pair of designs."""
    with (files("training") / "paper.csv").open() as file:
        table = pd.read_csv(file, keep_default_na=True).fillna({"profile": "", "minus_profile": ""})
    dataset = "pandar" if section.dataset == "simulated" else section.dataset
    group = table[(table.dataset == dataset) & (table.conditions == section.conditions)]
    group = group[group.minus_method.notna() == differences]
    found: dict[Any, Any] = {}
    for line in group.to_dict("records"):
        first = DesignRow(line["method"], int(line["k"]), line["profile"])
        if differences:
            found[first, DesignRow(line["minus_method"], int(line["minus_k"]), line["minus_profile"])] = line
        else:
            found[first] = line
    return found


def quality(section: Section, designs: Sequence[DesignRow] | None = None) -> pd.DataFrame:
    """Tabulate designs: means over splits, levels out of band, the worst ear, and the number of cases."""
    means, deviations = section.means([*COLUMNS, "loud_high_band"])
    lines = []
    for design in section.designs if designs is None else designs:
        group, mean = section.designs[design], means[design]
        lines.append(
            {
                "design": section.name(design),
                "NR dB": mean["noise_reduction_db"],
                "NR SD over splits": deviations[design]["noise_reduction_db"],
                "worst ear NR": group.noise_reduction_db.min(),
                **{title: mean[column] for column, title in COLUMNS.items() if title != "NR dB"},
                "loudest band above 8.9 kHz": group.worst_high_band_db.max(),
                "ears above +3 dB there, %": 100 * mean["loud_high_band"],
                **({"unstable": int((group.stable == False).sum())} if "stable" in group else {}),  # noqa: E712
                **counts(group),
            }
        )
    return pd.DataFrame(lines)


def counts(rows: pd.DataFrame) -> dict[str, int | str]:
    """Count splits, seeds, listeners and cases of a mean.

    An unfinished method may have different numbers of seeds per split; one without randomness has none.
    """
    seeds = sorted(set(rows.groupby("split").seed.nunique()))
    return {
        "splits": rows["split"].nunique(),
        "seeds": " to ".join(str(n or "-") for n in (seeds if len(seeds) < 2 else seeds[:: len(seeds) - 1])),
        "listeners": rows.listener.nunique(),
        "cases": len(rows[CASE].drop_duplicates()),
    }


def starts(section: Section) -> str | None:
    """Tabulate NR by number of updates, with a line per start and profile."""
    means, deviations = section.means(["noise_reduction_db"])
    refined = in_order({DesignRow(design.method, 0, design.profile) for design in section.designs if design.k})
    if not refined:
        return None
    lines = []
    for method, _, profile in refined:
        line: dict[str, object] = {"start": method, "profile": profile}
        for k in range(int(section.rows.k.max()) + 1):
            design = DesignRow(method, k, profile if k else "")
            line[f"K = {k}"] = ""
            if design in means:
                mean, deviation = means[design].iloc[0], deviations[design].iloc[0]
                line[f"K = {k}"] = f"{mean:.2f}" + ("" if math.isnan(deviation) else f" ± {deviation:.2f}")
        lines.append(line | counts(section.rows[(section.rows.method == method) & (section.rows.k > 0)]))
    title = section.title("Gauss-Newton updates from common starts: NR in dB, mean ± SD over splits")
    return f"### {title}\n\n{markdown(pd.DataFrame(lines))}"


def pairs(section: Section) -> str | None:
    """Tabulate paired differences over splits, first minus second, on common cases; seeds are averaged."""
    lines = []
    theirs = paper_results(section, differences=True)
    for first, second in PAIRS:
        if not {first, second} <= section.designs.keys():
            continue
        sides = [section.designs[item] for item in (first, second)]
        columns = ["noise_reduction_db", "amplification_db"]
        cases = [group.groupby(["split", *CASE])[columns].mean() for group in sides]
        both = (cases[0] - cases[1]).dropna(how="all")
        if both.empty:
            continue
        splits = both.groupby(["split", "listener"]).mean().groupby("split").mean()
        gain, paper = splits.noise_reduction_db, theirs.get((first, second), {})
        won = paper.get("splits_won", math.nan)
        lines.append(
            {
                "first": section.name(first),
                "second": section.name(second),
                "NR dB": gain.mean(),
                "SD": gain.std(),
                "least": gain.min(),
                "splits won": f"{(gain > 0).sum()} of {len(gain)}",
                "AMP dB": splits.amplification_db.mean(),
                "seeds": " / ".join(str(counts(side)["seeds"]) for side in sides),
                "listeners": both.index.get_level_values("listener").nunique(),
                "cases": len(both.droplevel("split").index.unique()),
                "paper NR dB": paper.get("noise_reduction_db"),
                "paper splits won": "" if math.isnan(won) else f"{won:g} of 10",
            }
        )
    if not lines:
        return None
    return f"### {section.title('Paired differences over splits')}\n\n{markdown(pd.DataFrame(lines))}"


def predictions(section: Section) -> str | None:
    """Tabulate errors of the prediction relative to the score, with and without a coherence."""
    means, _ = section.means(["prediction_error_db", "prediction_miss_db", "blind_miss_db"])
    lines = [
        {
            "design": section.name(design),
            "predicted - scored NR dB": means[design]["prediction_error_db"],
            "its mean size": means[design]["prediction_miss_db"],
            "its largest": group.prediction_miss_db.max(),
            "its mean size without coherence": means[design]["blind_miss_db"],
            "its largest without coherence": group.blind_miss_db.max(),
            **counts(group),
        }
        for design, group in section.designs.items()
        if group.prediction_error_db.notna().any()
    ]
    return (
        f"### {section.title('Predicted against scored NR')}\n\n{markdown(pd.DataFrame(lines))}" if lines else None
    )


def by_each_split(section: Section) -> str:
    """Tabulate NR and AMP of all designs (lines) in all splits (columns)."""
    means = split_means(section.rows, ["noise_reduction_db", "amplification_db"])
    cells = means.noise_reduction_db.map("{:.2f}".format) + " / " + means.amplification_db.map("{:.3f}".format)
    table = cells.unstack("split").sort_index(axis=1).reindex(list(section.designs)).fillna("")
    table.insert(0, "design", [section.name(design) for design in section.designs])
    return f"### {section.title('NR / AMP in dB, split by split')}\n\n{markdown(table)}"


def by_recording(rows: pd.DataFrame) -> str:
    """Compose tables of a run by recording: trained methods against WMMSE from the same estimates, by probe and SNR.

    A single recording is a separate case, so that means over single recordings weight them equally.
    """
    case = ["split", "listener", "ear", "probe", "snr_db"]
    columns = ["noise_reduction_db", "amplification_db", "predicted_noise_reduction_db"]
    means = rows.groupby([*DESIGN, *case], dropna=False)[columns].mean()
    cases = {
        as_design(key): group.reset_index(DESIGN, drop=True).reset_index()
        for key, group in means.groupby(level=DESIGN)
    }
    lines: dict[tuple[str, str], dict[str, object]] = {}
    for design, group in cases.items():
        for probe, snr, chosen in probe_groups(group):
            line = lines.setdefault((probe, snr), {"probe": probe, "noise": snr})
            figures = (mean_over_splits(chosen, name) for name in ("noise_reduction_db", "amplification_db"))
            line[design.name] = "{:.2f} / {:.3f}".format(*figures)
    parts = [f"### NR / AMP in dB by probe and SNR\n\n{markdown(pd.DataFrame(lines.values()).fillna(''))}"]
    for method in sorted(set(rows.method[rows.seed.notna()])):
        designs = [DesignRow(method, k, "fast" if k else "") for k in sorted(set(rows.k))]
        parts += [
            against_wmmse(item, cases, case) for item in designs if {item, DesignRow("wmmse")} <= cases.keys()
        ]
    return "\n\n".join(parts)


def probe_groups(cases: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield name of the probe, SNR and cases; broad-band probes first, those without noise before noisy ones."""
    others = (*BROAD_BAND, "airplane_like")
    kinds = {"broad-band": cases.probe.isin(BROAD_BAND), "single recording": ~cases.probe.isin(others)}
    kinds |= {name: cases.probe == name for name in others}
    for name, chosen in kinds.items():
        for snr_db, group in cases[chosen].groupby(cases.snr_db.fillna(math.inf), sort=True):
            yield name, "none" if snr_db == math.inf else f"{snr_db:g} dB", group


def mean_over_splits(cases: pd.DataFrame, column: str) -> float:
    """Average over ears and probes within a listener, listeners within a split, splits."""
    listeners = cases.groupby(["split", "listener"])[column].mean()
    return float(listeners.groupby(level="split").mean().mean())


def against_wmmse(design: DesignRow, cases: dict[DesignRow, pd.DataFrame], case: list[str]) -> str:
    """Tabulate differences of NR on the same estimates, with and without the fallback, and errors of the prediction."""
    joined = cases[design].merge(cases[DesignRow("wmmse")], on=case, suffixes=("", "_wmmse"))
    gain = joined.noise_reduction_db - joined.noise_reduction_db_wmmse
    replaced = joined.predicted_noise_reduction_db_wmmse > joined.predicted_noise_reduction_db + FALLBACK_MARGIN_DB
    error = joined.predicted_noise_reduction_db - joined.noise_reduction_db
    joined = joined.assign(
        gain=gain, served=gain.where(~replaced, 0.0), replaced=100.0 * replaced, error=error, miss=error.abs()
    )
    refined = DesignRow("wmmse", 3, "paper")
    if refined in cases:
        joined = joined.merge(cases[refined][[*case, "noise_reduction_db"]], on=case, suffixes=("", "_refined"))
        joined["gain_refined"] = joined.noise_reduction_db - joined.noise_reduction_db_refined
    lines = []
    for probe, snr, chosen in probe_groups(joined):
        line: dict[str, object] = {
            "probe": probe,
            "noise": snr,
            "over WMMSE": mean_over_splits(chosen, "gain"),
            "worst ear": chosen.gain.min(),
            "with fallback": mean_over_splits(chosen, "served"),
            "worst ear ": chosen.served.min(),
            "replaced, %": mean_over_splits(chosen, "replaced"),
        }
        if "gain_refined" in chosen:
            line["over WMMSE + GN(3)"] = mean_over_splits(chosen, "gain_refined")
            line["worst ear  "] = chosen.gain_refined.min()
        line |= {
            "predicted - scored": mean_over_splits(chosen, "error"),
            "its mean size": mean_over_splits(chosen, "miss"),
            "its largest": chosen.miss.max(),
            "ears": chosen[["split", "listener", "ear"]].drop_duplicates().shape[0],
        }
        lines.append(line)
    return f"### {design.name} against WMMSE from the same estimates: NR in dB\n\n{markdown(pd.DataFrame(lines))}"


def mean_figures(*parts: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Average the figures on original measurements for a manifest, by design.

    Designs are starts, a generator's updates in its default profile, and WMMSE with three updates of `paper`; of
    several probes, broad-band ones without noise.
    """
    rows = pd.concat(parts, ignore_index=True)
    if "probe" in rows:
        rows = rows[rows.probe.isin(BROAD_BAND) & rows.snr_db.isna()]
    is_generator = rows.method.map(lambda name: METHODS[name].recipe is not None)
    default_updates = is_generator & (rows.profile == rows.method.map(default_profile))
    compared = (rows.method == "wmmse") & (rows.k == 3) & (rows.profile == "paper")
    chosen = rows[(rows.condition == "original") & ((rows.k == 0) | default_updates | compared)].assign(split=0)
    return {
        as_design(key).name: {str(name): round(float(value), 4) for name, value in mean.items()}
        for key, mean in split_means(chosen, list(COLUMNS)).iterrows()
    }


def markdown(table: pd.DataFrame) -> str:
    """Format a Markdown table; numbers with three decimals."""

    def cell(value: object) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: list[str]) -> int:
    """Write the report and print its tables. Without usable rows, print one line and return 2."""
    if not 1 <= len(arguments) <= 2 or {"-h", "--help"} & set(arguments):
        print(__doc__, file=sys.stdout if {"-h", "--help"} & set(arguments) else sys.stderr)
        return 0 if {"-h", "--help"} & set(arguments) else 2
    run, *out = map(Path, arguments)
    try:
        print(write_report(run, out[0] if out else None))
    except (RunError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
