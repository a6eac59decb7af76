"""Tables of one section: the paper's three, all designs, common starts, predictions, pairs, loose fits, splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from training.report.designs import (
    ADAPTIVE,
    Design,
    by_design,
    design_name,
    in_order,
    marked_name,
)
from training.report.published import Published, compared_dataset, published, published_difference
from training.report.rows import (
    COLUMNS,
    Section,
    counts,
    mean_and_deviation,
    paired_differences,
    split_means,
)

PAPER_COLUMNS = {
    "noise_reduction_db": "NR",
    "noise_reduction_sd_db": "SD",
    "amplification_db": "AMP",
    "control_rms": "RMS",
    "core_ms": "ms",
}

TABLE_1 = (
    "prime_no_interpolation",
    "prime",
    "prime-log_no_interpolation",
    "prime-log_minimum_phase",
    "prime-log",
    "ratio_base_full_band",
    "ratio_base_held_band",
    "fir_wiener",
    "projected_ratio",
    "fomaml",
    "selective",
    "generative",
    "wmmse_shared",
    "e2e_cfg",
)
TABLE_2 = (
    "prime",
    "skip_mp",
    "skip_mp_phase",
    "no_skip_mp",
    "no_skip_mp_phase",
    "prime_shuffled_phase",
    "prime_path_independent",
)
TABLE_3 = ("prime", "fir_wiener", "prime-log", "wmmse", "wmmse_fast", "iterative_fir")


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: its designs, and the published figures that are shown with ours."""

    title: str
    columns: tuple[str, ...]
    holds: Callable[[Design], bool]
    needs: tuple[str, ...]


def _in_table_3(design: Design) -> bool:
    known = design.method in TABLE_3 or design.method in ADAPTIVE or design.method.startswith("wmmse_pcg_")
    return known or (design.method.startswith("ratio_base") and design.k == 4)


PAPER_TABLES = (
    PaperTable(
        "Table 1. No query updates",
        ("noise_reduction_db", "noise_reduction_sd_db"),
        lambda design: design.k == 0 and design.method in TABLE_1,
        (),
    ),
    PaperTable(
        "Table 2. Construction and conditioning",
        ("noise_reduction_db", "amplification_db"),
        lambda design: design.k == 0 and design.method in TABLE_2,
        TABLE_2[1:],
    ),
    PaperTable(
        "Table 3. Quality and core time",
        ("noise_reduction_db", "amplification_db", "control_rms", "core_ms"),
        _in_table_3,
        (),
    ),
)

PAIRS = (
    (Design("prime-log"), Design("wmmse")),
    (Design("prime-log", 1, "fast"), Design("wmmse")),
    (Design("prime-log", 1, "fast"), Design("wmmse", 3, "paper")),
    (Design("prime-log", 3, "fast"), Design("wmmse", 3, "paper")),
    (Design("prime-log", 1, "fast"), Design("wmmse", 1, "fast")),
    (Design("prime-log", 1, "fast"), Design("wmmse", 3, "fast")),
    (Design("prime-log", 3, "fast"), Design("wmmse", 3, "fast")),
    (Design("prime-log", 1, "fast"), Design("fir_wiener", 1, "fast")),
    (Design("prime-log", 3, "fast"), Design("fir_wiener", 3, "fast")),
    (Design("prime-log"), Design("fir_wiener")),
    (Design("prime"), Design("ratio_base_full_band")),
    (Design("prime"), Design("prime_no_interpolation")),
    (Design("prime", 3, "paper"), Design("ratio_base_full_band", 4, "paper")),
    (Design("skip_mp"), Design("no_skip_mp")),
    (Design("skip_mp_phase"), Design("no_skip_mp_phase")),
    (Design("prime"), Design("prime_shuffled_phase")),
    (Design("prime"), Design("prime_path_independent")),
)


def supports(rows: pd.DataFrame) -> str:
    """The support listeners of each split; empty if nothing was trained."""
    if "support" not in rows:
        return ""
    columns = [name for name in ("split", "support", "support_recordings") if name in rows]
    found = rows[columns].dropna().drop_duplicates().sort_values("split")
    return "\n".join(
        f"- In support of split {split}: {', '.join(names)}." for split, *names in found.itertuples(index=False)
    )


def paper_table(section: Section, table: PaperTable, times: pd.DataFrame | None) -> str | None:
    """One of the paper's tables with published and own results; None if the rows have none of its designs."""
    ours = {design: own for design, own in section.designs.items() if table.holds(design)}
    if not ours or (table.needs and not {design.method for design in ours} & set(table.needs)):
        return None
    theirs = {d: line for d, line in published(section.dataset, section.conditions).items() if table.holds(d)}
    shown = tuple(c for c in table.columns if any(_value(line, c) for line in theirs.values()))
    lines = [{"design": marked_name(d, ours[d])} | _paper_figures(theirs.get(d), shown, section) for d in ours]
    own = quality(ours)
    if times is not None and "core_ms" in table.columns:
        own = own.join(core_times(times, list(ours)))
    parts = [f"### {section.title(table.title)}", markdown(pd.DataFrame(lines).join(own.drop(columns="design")))]
    if unmatched := in_order(d for d in theirs if d not in ours):
        figures = ", ".join(f"{design_name(*d)} {theirs[d].noise_reduction_db:g}" for d in unmatched)
        parts.append(f"In the paper's table and not in these rows (its NR, dB): {figures}.")
    return "\n\n".join(parts)


def _value(line: Published | None, column: str) -> float | None:
    value: float | None = getattr(line, column, None)
    return value


def _paper_figures(line: Published | None, columns: Iterable[str], section: Section) -> dict[str, float | None]:
    source = "paper" if compared_dataset(section.dataset) == section.dataset else "paper's PANDAR"
    return {f"{source} {PAPER_COLUMNS[column]}": _value(line, column) for column in columns}


def quality(designs: dict[Design, pd.DataFrame]) -> pd.DataFrame:
    """A line per design: means over splits, levels out of band, the worst ear, and the number of cases."""
    means, deviations = mean_and_deviation(pd.concat(designs.values()), [*COLUMNS, "loud_high_band"])
    lines = []
    for design, own in designs.items():
        mean = means[design]
        lines.append(
            {
                "design": marked_name(design, own),
                "NR dB": mean["noise_reduction_db"],
                "NR SD over splits": deviations[design]["noise_reduction_db"],
                "worst ear NR": own.noise_reduction_db.min(),
                **{title: mean[column] for column, title in COLUMNS.items() if title != "NR dB"},
                "loudest band above 8.9 kHz": own.worst_high_band_db.max(),
                "ears above +3 dB there, %": 100 * mean["loud_high_band"],
                **counts(own),
            }
        )
    return pd.DataFrame(lines)


def core_times(times: pd.DataFrame, designs: list[Design]) -> pd.DataFrame:
    """Milliseconds of each design, a column per device, a line per design in their order."""
    by_design = times.pivot(index=["method", "k", "profile"], columns="device", values="core_ms")
    own = by_design.reindex(pd.MultiIndex.from_tuples(designs)).reset_index(drop=True)
    return own.rename(columns=lambda device: f"ms ({device})")


def starts(section: Section) -> str | None:
    """NR by number of updates, with a line for each starting method and profile."""
    means, deviations = mean_and_deviation(section.rows, ["noise_reduction_db"])
    refined = {(d.method, d.profile) for d in section.designs if d.k}
    lines = []
    for method, _, profile in in_order(Design(method, 0, profile) for method, profile in refined):
        line: dict[str, object] = {"start": method, "profile": profile}
        for k in range(int(section.rows.k.max()) + 1):
            design = Design(method, k, profile if k else "")
            line[f"K = {k}"] = ""
            if design in means:
                mean, deviation = means[design].iloc[0], deviations[design].iloc[0]
                line[f"K = {k}"] = f"{mean:.2f}" + ("" if math.isnan(deviation) else f" ± {deviation:.2f}")
        lines.append(line | counts(section.rows[(section.rows.method == method) & (section.rows.k > 0)]))
    if not lines:
        return None
    title = section.title("Gauss-Newton updates from common starts: NR in dB, mean ± SD over splits")
    return f"### {title}\n\n{markdown(pd.DataFrame(lines))}"


def predictions(section: Section) -> str | None:
    """Error of the prediction relative to the score, with and without a coherence."""
    columns = ["prediction_error_db", "prediction_miss_db", "blind_miss_db"]
    means, _ = mean_and_deviation(section.rows, columns)
    lines = []
    for design, own in section.designs.items():
        mean = means[design]
        if own.prediction_error_db.isna().all():
            continue
        lines.append(
            {
                "design": marked_name(design, own),
                "predicted - scored NR dB": mean["prediction_error_db"],
                "its mean size": mean["prediction_miss_db"],
                "its largest": own.prediction_miss_db.max(),
                "its mean size without coherence": mean["blind_miss_db"],
                "its largest without coherence": own.blind_miss_db.max(),
                **counts(own),
            }
        )
    if not lines:
        return None
    return f"### {section.title('Predicted against scored NR')}\n\n{markdown(pd.DataFrame(lines))}"


def pairs(section: Section) -> str | None:
    """Paired differences over splits, first minus second, on the cases that both have.

    Cases are averaged within a listener, listeners within a split, as in every other mean.
    """
    lines = []
    for first, second in PAIRS:
        if not {first, second} <= section.designs.keys():
            continue
        sides = section.designs[first], section.designs[second]
        cases = paired_differences(*sides, ["noise_reduction_db", "amplification_db"])
        if cases.empty:
            continue
        splits = cases.groupby(["split", "listener"]).mean().groupby("split").mean()
        gain = splits.noise_reduction_db
        seeds = [str(counts(side)["seeds"]) for side in sides]
        theirs = published_difference(section.dataset, section.conditions, first, second)
        lines.append(
            {
                "first": marked_name(first, sides[0]),
                "second": marked_name(second, sides[1]),
                "NR dB": gain.mean(),
                "SD": gain.std(),
                "least": gain.min(),
                "splits won": f"{(gain > 0).sum()} of {len(gain)}",
                "AMP dB": splits.amplification_db.mean(),
                "seeds": " / ".join(seeds),
                "listeners": cases.index.get_level_values("listener").nunique(),
                "cases": len(cases.droplevel("split").index.unique()),
                "paper NR dB": theirs.noise_reduction_db if theirs else None,
                "paper splits won": f"{theirs.n_won} of 10" if theirs and theirs.n_won else "",
            }
        )
    if not lines:
        return None
    return f"### {section.title('Paired differences over splits')}\n\n{markdown(pd.DataFrame(lines))}"


def all_designs(section: Section) -> str:
    """Every design with all its figures."""
    table = quality(section.designs)
    return f"### {section.title('All designs')}\n\n{markdown(table)}"


def loose_fits(section: Section) -> list[str]:
    """All designs on the ears with a slightly loose fit, and on those with a loose fit."""
    parts = []
    for fit in ("slightly loose", "loose"):
        own = section.rows[section.rows.fit == fit]
        if len(own):
            ears = ", ".join(sorted(set(own.listener + " " + own.ear)))
            title = section.title(f"{fit.capitalize()} fit only: {ears}")
            parts.append(f"### {title}\n\n{markdown(quality(by_design(own)))}")
    return parts


def by_split(section: Section) -> str:
    """NR and AMP of every design (lines) in every split (columns)."""
    means = split_means(section.rows, ["noise_reduction_db", "amplification_db"])
    cells = means.noise_reduction_db.map("{:.2f}".format) + " / " + means.amplification_db.map("{:.3f}".format)
    table = cells.unstack("split").sort_index(axis=1).reindex(list(section.designs)).fillna("")
    table.insert(0, "design", [marked_name(*item) for item in section.designs.items()])
    return f"### {section.title('NR / AMP in dB, split by split')}\n\n{markdown(table)}"


def every_split(section: Section) -> str:
    """All figures of every design in every split, a line each."""
    means = split_means(section.rows, list(COLUMNS)).rename(columns=COLUMNS).reset_index()
    names = {design: marked_name(design, own) for design, own in section.designs.items()}
    designs = [Design(*values) for values in means[["method", "k", "profile"]].itertuples(index=False, name=None)]
    means.insert(0, "design", [names[design] for design in designs])
    means = means.assign(place=[list(names).index(design) for design in designs]).sort_values(["split", "place"])
    table = means.drop(columns=["method", "k", "profile", "place"])
    return f"## {section.title('All figures, split by split')}\n\n{markdown(table)}"


def markdown(table: pd.DataFrame) -> str:
    """A Markdown table; numbers with three decimals."""

    def cell(value: object) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
