"""The report of the study, from its rows alone: OUT/report.md and the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from training.calibration_study.designs import UNTRAINED
from training.calibration_study.plots import plot_generators, plot_paper, plot_sensitivity
from training.calibration_study.rows import read_study, read_table
from training.calibration_study.settings import (
    DENOISERS,
    GROUPS,
    all_settings,
    paper_search,
    setting_label,
    standards,
)
from training.calibration_study.tables import (
    PAPER_FIGURES,
    PAPER_ORIGINAL_BASE,
    against_wmmse,
    all_conditions,
    denoising_gains,
    denoising_table,
    design_means,
    figure_table,
    over_table,
    paper_distance,
    worst_table,
)
from training.report.tables import markdown
from training.run_folder import write_atomically


def write_report(folder: Path) -> str:
    """Write report.md and the figures beside the rows; return the report."""
    rows = read_study(folder)
    labels = {each.name: setting_label(each) for each in [*all_settings(), *paper_search()]}
    means = design_means(rows)
    untrained = means[means.method.isin(UNTRAINED)]
    trained = means[~means.method.isin(UNTRAINED)]
    over = against_wmmse(rows) if len(trained) else None
    parts = ["# Calibration study", NOTE, "## Nearest to the paper", *_paper_parts(rows, labels)]
    if over is not None:
        parts += ["## Where k = 0 loses most against WMMSE", WORST_NOTE, markdown(worst_table(over, labels))]
    for title, settings in GROUPS.items():
        varied = {each.name for each in settings if title == "Window" or each not in standards()}
        if varied & set(means.setting):
            parts += [f"## {title}", markdown(figure_table(untrained, settings))]
            if over is not None:
                counts = over.groupby("method", sort=False).source.nunique()
                parts += ["Trained: " + ", ".join(f"{name}, {n} models" for name, n in counts.items()) + "."]
                parts += [
                    markdown(figure_table(trained, settings)),
                    OVER_NOTE,
                    markdown(over_table(over, settings)),
                ]
    if (folder / "denoised.csv").exists():
        denoised = read_table(folder / "denoised.csv")
        parts.append("## Denoised secondary estimates")
        for by, text in DENOISERS.items():
            gains = denoising_gains(rows, denoised[denoised.by == by])
            parts += [f"Change of NR in dB where the secondary estimates are denoised by {text}:"]
            parts += [denoising_table(gains)]
    text = "\n\n".join(parts) + "\n"
    write_atomically(folder / "report.md", text)
    plot_paper(rows, folder / "calibration_paper.png")
    plot_sensitivity(means, folder / "calibration_sensitivity.png")
    if over is not None:
        plot_generators(over, folder / "calibration_generators.png")
    return text


NOTE = (
    "NR / AMP in dB, mean over persons, predicted by the reference spectrum on the true paths (within 0.1 dB of "
    "the time-domain score in the mean); originals unless said otherwise. Trained generators: persons outside "
    "their support, mean over models. Window in samples; regularisation over the largest bin of the reference "
    "autospectrum, 1e-6 unless said otherwise; all eight probes and no measurement noise unless said otherwise."
)

WORST_NOTE = (
    "Change of NR(k = 0) - NR(WMMSE), same estimates and ears, from the model's own training window with all else "
    "standard: mean, least and most over models; then what of it is the generator's NR, and what WMMSE's."
)

OVER_NOTE = (
    "Their NR over WMMSE's at the same estimates, dB (in brackets: less the same difference at the model's own "
    "training window, all else standard):"
)


def _paper_parts(rows: pd.DataFrame, labels: dict[str, str]) -> Iterator[str]:
    figures = {**PAPER_FIGURES, "ratio_base_full_band": PAPER_ORIGINAL_BASE}
    both = {
        "Originals (base: the paper's figure there; the others: its means over conditions)": (
            paper_distance(rows[rows.condition == "original"], figures).head(12)
        ),
        "All four conditions": paper_distance(all_conditions(rows), PAPER_FIGURES),
    }
    for title, table in both.items():
        aim = figures if title.startswith("Originals") else PAPER_FIGURES
        yield (
            f"{title}. Distance: RMS of the three differences from "
            f"{' / '.join(f'{value:g}' for value in aim.values())} dB."
        )
        named = table.reset_index()
        named["setting"] = [labels[name] for name in named.setting]
        yield markdown(named)
