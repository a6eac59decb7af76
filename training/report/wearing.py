"""How filters hold as they are worn, from rows of `python -m studies.wearing`: directions, latency, loops."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

from training.report.rows import ReportError, read_csv
from training.report.tables import markdown

WEARING_FILE = "wearing.csv"
FIGURE_FILE = "wearing.png"
_COLUMNS = (
    *("case", "given", "ear", "left_mean_db", "left_worst_db", "closed_db", "pressed_db"),
    *("latency_samples", "noise_reduction_db", "louder_db", "loudest_db", "gain_margin_db"),
)
_NOTE = (
    "Means over starts, of `least` the least; scored on conditions that were not given. latency: ears calibrated "
    "at 40 dB SNR, scored on true paths; louder: the loudest band from 50 Hz to 8 kHz, mean over ears and largest."
)
_DB = {"left": "#0072B2", "right": "#D55E00"}


def read_wearing(folder: Path) -> pd.DataFrame | None:
    """The study's rows, or None without a file; ReportError for a file without its columns."""
    file = folder / WEARING_FILE
    if not file.exists():
        return None
    rows = read_csv(file)
    if missing := set(_COLUMNS) - set(rows.columns):
        raise ReportError(
            f"{file}: found no column {', '.join(sorted(missing))}; make it with python -m studies.wearing"
        )
    return rows


def wearing_tables(rows: pd.DataFrame) -> str:
    """Directions, ways of wearing, latencies and loops, a table each."""
    parts = ["## As it is worn", _NOTE]
    for case, columns in {
        "directions": {"left_mean_db": "mean NR dB", "left_worst_db": "worst NR dB"},
        "worn": {"closed_db": "closed NR dB", "pressed_db": "pressed NR dB"},
        "latency": {"noise_reduction_db": "NR dB", "louder_db": "louder dB", "loudest_db": "at most dB"},
        "loop": {"gain_margin_db": "gain margin dB"},
    }.items():
        own = rows[rows.case == case]
        keys = ["given", "latency_samples"] if case == "latency" else ["given", "ear"]
        means = own.groupby(keys, sort=False)[list(columns)].mean()
        if case == "directions":
            means["least dB"] = own.groupby(keys, sort=False).left_worst_db.min()
        if case == "latency":
            means["loudest_db"] = own.groupby(keys, sort=False).loudest_db.max()
        if len(own):
            parts += [f"### {case.capitalize()}", markdown(means.rename(columns=columns).reset_index())]
    return "\n\n".join(parts)


def plot_wearing(rows: pd.DataFrame, file: Path) -> None:
    """NR over the number of directions given; NR and loudest band over latency; the loops' gain margins."""
    figure, (directions, latency, loop) = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    own = rows[(rows.case == "directions") & rows.given.str.endswith("all around")]
    own = own.assign(n_given=own.given.str.split().str[0].astype(int))
    for ear, colour in _DB.items():
        means = own[own.ear == ear].groupby("n_given")[["left_mean_db", "left_worst_db"]].mean()
        directions.plot(means.left_mean_db, "o-", color=colour, label=f"{ear} ear, mean")
        directions.plot(means.left_worst_db, "v:", color=colour, label=f"{ear} ear, worst direction")
    directions.set(xlabel="directions given", ylabel="NR in directions not given (dB)")

    late = rows[rows.case == "latency"]
    for name, colour in {"service": "#D55E00", "wmmse": "#0072B2", "fir_wiener": "#009E73"}.items():
        means = late[late.given == name].groupby("latency_samples")[["noise_reduction_db", "louder_db"]].mean()
        latency.plot(means.noise_reduction_db, "o-", color=colour, label=f"{name}, NR")
        latency.plot(means.louder_db, "v:", color=colour, label=f"{name}, loudest band")
    latency.set(xlabel="latency (samples at 48 kHz)", ylabel="dB")

    worn = rows[rows.case == "loop"]
    loop.barh(worn.given + ", " + worn.ear, worn.gain_margin_db, color=worn.ear.map(_DB))
    loop.axvline(6, color="0.4", lw=0.8)
    loop.set(xlabel="least gain margin in all ways of wearing (dB)", title="designed for; line: the default margin")
    loop.title.set_fontsize(9)
    for axes in (directions, latency):
        axes.grid(color="0.92")
        axes.legend(fontsize=7)
    figure.savefig(file, dpi=130)
    plt.close(figure)
