"""Composes the report: rows -> tables -> figures -> pages."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from training.report import figures, tables
from training.report.by_recording import FALLBACK_MARGIN_DB, by_recording
from training.report.designs import METHODS
from training.report.inputs import (
    CORE_TIME_FILE,
    PATHS_FILE,
    WEIGHTED_FXLMS_FILE,
    Listeners,
    read_core_times,
    read_paths,
    read_weighted_fxlms,
)
from training.report.listener_pages import draw_pages
from training.report.rows import CASES_FILE, Section, checked, read_rows, sections
from training.report.wearing import FIGURE_FILE, WEARING_FILE, plot_wearing, read_wearing, wearing_tables

TABLES_FILE = "tables.md"
SPLITS_FILE = "splits.md"

NOTE = (
    "NR: mean over the one-third octaves 50 Hz-5 kHz. AMP: 50 Hz-8 kHz, quieter bands counted as 0 in each block. "
    "low, high: change of level in 22.4-44.7 Hz and 8.9-22.4 kHz, positive is louder. late cut: scored with the "
    "primary's taps from 2048 on set to zero. Means over ears, conditions and seeds within a listener, over "
    "listeners within a split, over splits; SD: sample standard deviation over split means. cases: ears times "
    "conditions. No listener was in its model's support. "
    "GN(k): k updates of the `fast` profile for prime-log, of the `paper` profile for all others, unless named. "
    "(true paths): adapted on the query's true paths, so not comparable with the other lines. "
    "paper: 23 PANDAR persons, ten splits, three seeds, an RTX 5090."
)

BY_RECORDING_NOTE = (
    "Filters are scored on the held-out recordings, white and pink. pool: the held-out recordings together; single "
    "recording: each of them alone; airplane_like: nothing above 8 kHz; broad-band: white, pink and pool. noise: "
    "SNR at the error microphone. Means over ears and probes within a listener, over listeners within a split, "
    "over splits; worst ear: of all. with fallback: WMMSE where it is predicted to be better by more than "
    f"{FALLBACK_MARGIN_DB} dB. No listener and no recording was in its model's support."
)

MADE_BY = {
    CASES_FILE: "python -m training.run_splits ... --methods NAME,... --out OUT",
    CORE_TIME_FILE: "python -m training.run_splits ... --out OUT",
    WEIGHTED_FXLMS_FILE: "python -m training.run_splits ... --methods weighted_fxlms,... --out OUT",
    PATHS_FILE: "python -m training.run_splits ... --out OUT",
    WEARING_FILE: f"python -m studies.wearing ... --out OUT/{WEARING_FILE}",
}
"""Input file -> command that writes it."""


def write_report(folder: Path) -> str:
    """Write the tables, figures and pages beside the rows; return the text of `tables.md`."""
    rows = checked(read_rows(folder))
    if rows.probe.notna().any():
        return _write_by_recording(folder, rows)
    times, paths = read_core_times(folder), read_paths(folder)
    weighted, worn = read_weighted_fxlms(folder, rows), read_wearing(folder)
    found = list(sections(rows))
    simulated = " (SIMULATED data)" if rows.simulated.any() else ""
    parts = [f"# {rows.dataset.iloc[0]}, listeners held out{simulated}", NOTE]
    parts += [tables.supports(rows), _left_out(rows, times=times, weighted=weighted, paths=paths, worn=worn)]
    for section in found:
        parts.append(f"## {section.title('Tables')}")
        parts += section_tables(section, times)
    if worn is not None:
        parts.append(wearing_tables(worn))
        plot_wearing(worn, folder / FIGURE_FILE)
    text = "\n\n".join(part for part in parts if part) + "\n"
    (folder / TABLES_FILE).write_text(text)
    (folder / SPLITS_FILE).write_text("\n\n".join(tables.every_split(section) for section in found) + "\n")
    windows = sorted({section.window for section in found})
    for window in windows:
        own = [section for section in found if section.window == window]
        suffix = f"_window{window}" if len(windows) > 1 else ""
        draw(own, folder, suffix, times, weighted, paths)
    return text


def _write_by_recording(folder: Path, rows: pd.DataFrame) -> str:
    """The tables of a run whose held-out listeners are calibrated with several probes; it has no figures."""
    simulated = " (SIMULATED data)" if rows.simulated.any() else ""
    title = f"# {rows.dataset.iloc[0]}, listeners and recordings held out{simulated}"
    text = "\n\n".join([title, BY_RECORDING_NOTE, tables.supports(rows), by_recording(rows)]) + "\n"
    (folder / TABLES_FILE).write_text(text)
    return text


def section_tables(section: Section, times: pd.DataFrame | None) -> list[str]:
    """All tables of a section, in order."""
    parts: list[str | None] = []
    for table in tables.PAPER_TABLES:
        text = tables.paper_table(section, table, times)
        parts.append(text or f"{table.title}: left out, because these rows have none of its designs.")
    parts += [tables.starts(section), tables.pairs(section), tables.all_designs(section)]
    parts += [*tables.loose_fits(section), tables.predictions(section), tables.by_split(section)]
    return [part for part in parts if part]


def draw(
    found: list[Section],
    folder: Path,
    suffix: str,
    times: pd.DataFrame | None,
    weighted: pd.DataFrame | None,
    paths: Listeners | None,
) -> None:
    """All figures of one window; those over updates and time use the largest group of conditions."""
    widest, apart = found[0], [section for section in found if section.conditions != "all"]
    figures.plot_bands(apart, weighted, folder / f"noise_reduction_per_band{suffix}.png")
    figures.plot_prediction(apart[0], folder / f"predicted_against_scored{suffix}.png")
    figures.plot_starts(widest, folder / f"gauss_newton_starts{suffix}.png")
    figures.plot_pareto(widest, folder / f"pareto{suffix}.png")
    if times is not None:
        figures.plot_core_time(widest, times, folder / f"quality_against_core_time{suffix}.png")
    if paths is not None:
        draw_pages(apart[0], paths, folder / f"listeners{suffix}")


def _left_out(
    rows: pd.DataFrame,
    *,
    times: pd.DataFrame | None,
    weighted: pd.DataFrame | None,
    paths: Listeners | None,
    worn: pd.DataFrame | None,
) -> str:
    """A line for each part whose input is missing, with the command that writes that input."""
    lines = []
    for part, file, content in (
        ("core times", CORE_TIME_FILE, times),
        ("weighted FxLMS in the band figure", WEIGHTED_FXLMS_FILE, weighted),
        ("a page for each listener", PATHS_FILE, paths),
        ("directions, latency and loops", WEARING_FILE, worn),
    ):
        if content is None:
            lines.append(f"- Left out: {part}. No `{file}`; `{MADE_BY[file]}` writes it.")
    if not rows.k.any():
        lines.append("- Left out: Gauss-Newton from common starts. No rows with k > 0.")
    absent = [method for method in METHODS if method not in set(rows.method) and method != "weighted_fxlms"]
    if absent:
        lines.append(f"- Methods without rows: {', '.join(absent)}. `{MADE_BY[CASES_FILE]}` adds them.")
    return "\n".join(lines)
