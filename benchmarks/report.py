"""`python -m benchmarks report`: pictures and a table of every folder of results.

Reads what the other commands wrote and runs nothing. `--out` is the folder that holds the folders (default:
benchmarks/results); each gets its pictures, and report.md beside them shows all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.results import RESULTS_ROOT, Row, read
from synthesis.conventions import STAGES

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

Document = dict[str, Any]

LISTED_ELSEWHERE = ("resident_bytes", "figures", "rows", "held")
"""What a verdict's table leaves out: series, and tables of their own."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(options: argparse.Namespace) -> None:
    """Draw, write report.md, print its name; ValueError where there is nothing to report."""
    root = options.out or RESULTS_ROOT
    folders = sorted({file.parent for file in [*root.glob("*.json"), *root.glob("*/*.json")]}, reverse=True)
    sections = []
    for folder in folders:
        documents = {file.stem: read(file) for file in sorted(folder.glob("*.json"))}
        documents = {name: each for name, each in documents.items() if "benchmark" in each}
        if documents:
            sections.append(section(folder, root, documents))
    if not sections:
        raise ValueError(f"{root}: found no results, expected the folders that `python -m benchmarks core` writes")
    file = root / "report.md"
    file.write_text("# Benchmarks\n\nMade by `python -m benchmarks report`.\n\n" + "\n".join(sections))
    print(f"written: {file}")


def section(folder: Path, root: Path, documents: dict[str, Document]) -> str:
    """One folder's part of the report; draws its pictures."""
    machine = next(iter(documents.values()))["machine"]
    commits = ", ".join(sorted({each["machine"]["commit"] for each in documents.values()}))
    lines = [
        f"## {folder.resolve().name}: {str(machine['created'])[:10]}, {machine['device']}",
        "",
        f"{machine['cores']} cores, {machine['n_threads']} threads, torch {machine['torch']}, commit {commits}.",
        "",
    ]
    noisy = sorted(name for name, each in documents.items() if not each["machine"]["quiet"])
    if noisy:
        lines += [f"**The machine was not quiet during {', '.join(noisy)}: those times are not to be quoted.**", ""]
    unmeasured = sorted(name for name, each in documents.items() if not each.get("data", {}).get("measured", True))
    if unmeasured:
        lines += [f"Simulated ears: {', '.join(unmeasured)}.", ""]
    for name, document in documents.items():
        benchmark = document["benchmark"].split("-")[0]
        lines += [f"### {name}", "", *TABLES.get(benchmark, verdict_table)(document), ""]
        if benchmark in PICTURES:
            picture = folder / f"{name}.png"
            PICTURES[benchmark](document, picture)
            lines += [f"![{name}]({picture.relative_to(root).as_posix()})", ""]
    return "\n".join(lines)


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """A markdown table."""
    heads = list(heads)
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(str(each) for each in row) + " |" for row in rows),
    ]


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits, never an exponent; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def both(times: Row | None) -> str:
    """p50 / p99."""
    return "-" if times is None else f"{number(times['p50'])} / {number(times['p99'])}"


def core_table(document: Document) -> list[str]:
    """Designers and stages."""
    rows = document["rows"]
    lines = table(
        ("designer", "batch", "core, ms (p50 / p99)", "x k=1", "designs/s", "NR, dB", "worst ear", "AMP, dB"),
        (
            (
                row["designer"],
                row["batch"],
                both(row["core_ms"]),
                number(row["core_over_yardstick"]),
                number(row["designs_per_s"]),
                f"{row['quality']['noise_reduction_db']:.2f}",
                f"{row['quality']['worst_ear_db']:.2f}",
                f"{row['quality']['amplification_db']:.3f}",
            )
            for row in rows
        ),
    )
    own = [row for row in rows if row["designer"].startswith("k=")]
    timed = [stage for stage in STAGES if any(stage in row["stages_ms"] for row in own)]
    lines.append("")
    lines += table(
        ("stage, ms (p50 / p99)", *(f"{row['designer']}, batch {row['batch']}" for row in own)),
        ((stage, *(both(row["stages_ms"].get(stage)) for row in own)) for stage in timed),
    )
    if "alone" in document:  # files of before it was measured have none
        lines.append("")
        lines += table(
            ("alone, one after the other", "batch", "core, ms (p50 / p99)", "solve, ms (p50 / p99)"),
            (
                (row["designer"], row["batch"], both(row["core_ms"]), both(row["stages_ms"].get("solve")))
                for row in document["alone"]
            ),
        )
        lines.append("")
        lines += [
            f"One update over the recursion of `solve_toeplitz`, batch {ratio['batch']}: "
            f"{number(ratio['in_turns'])} in turns, {number(ratio['alone'])} alone."
            for ratio in document["yardstick_over_solver"]
        ]
    step = document["gauss_newton_step"]
    reached = "" if step["equal_residual_reached"] else ", which was not enough"
    lines += [
        "",
        f"One update: {number(step['service_ms'])} ms at a residual of {number(step['service_residual'])}; with "
        f"the paper's operators {number(step['paper_ms'])} ms at {step['paper_iterations']} iterations and "
        f"{number(step['equal_residual_ms'])} ms at equal residual ({step['equal_residual_iterations']} iterations"
        f"{reached}): a ratio of {number(step['service_over_equal_residual'])}.",
    ]
    return lines


BARE = ("bare_socket_ms", "bare_server_ms")


def http_table(document: Document) -> list[str]:
    """Requests and loops."""
    return table(
        (
            "request",
            "k",
            "loop",
            "per s",
            "latency, ms",
            "over core and decode",
            "over the server's total",
            "bare socket / server, p50",
            "failed",
        ),
        (
            (
                f"{row['request']} ({row['request_bytes'] / 1e3:.0f} kB)",
                row["k"],
                row["loop"],
                number(row["answers_per_s"]),
                both(row["latency_ms"]),
                both(row["over_core_and_decode_ms"]),
                both(row["over_server_ms"]),
                " / ".join(number(row[name]["p50"]) for name in BARE if name in row),
                len(row["failed"]),
            )
            for row in document["rows"]
        ),
    )


def sizing_table(document: Document) -> list[str]:
    """Designs a second."""
    return table(
        ("cores of the service", "clients", "designs/s", "p50 / p99, ms"),
        ((row["cores"], row["clients"], number(row["designs_per_s"]), both(row)) for row in document["rows"]),
    )


def start_table(document: Document) -> list[str]:
    """Seconds until the service is ready."""
    return table(
        ("starts", "to ready, s: median", "at most", "the first"),
        (
            (row["n"], number(row["p50_s"]), number(row["max_s"]), number(row["each_s"][0]))
            for row in document["rows"]
        ),
    )


def train_table(document: Document) -> list[str]:
    """Groups."""
    return table(
        ("generator", "at once", "updates/s", "seconds a model", "", "preparation, s"),
        (
            (
                row["generator"],
                row["group"],
                number(row["updates_per_s"]),
                number(row["seconds_per_model"]),
                "extrapolated" if row["extrapolated"] else "measured",
                number(row["prepare_s"]),
            )
            for row in document["rows"]
        ),
    )


def adaptive_table(document: Document) -> list[str]:
    """Methods and ears."""
    return table(
        ("method", "ear", "samples/s", "times real time", "signal, s", "NR dB on white noise", "ended by"),
        (
            (
                row["method"],
                row["ear"],
                number(row["samples_per_s"]),
                number(row["times_real_time"]),
                number(row["adapted_s"]),
                number(row["noise_reduction_db"]),
                row["stopped"].replace("_", " "),
            )
            for row in document["rows"]
        ),
    )


def scaling_table(document: Document) -> list[str]:
    """Axes."""
    return table(
        ("axis", "value", "by", "what", "ms (p50 / p99)"),
        ((row["axis"], row["value"], row["by"], row["what"], both(row["ms"])) for row in document["rows"]),
    )


def generator(row: Row) -> str:
    """Of a row of counts; before they were of two, they were of the default model's."""
    return str(row.get("generator", "prime-log"))


def trace_table(document: Document) -> list[str]:
    """Stages."""
    lines = table(
        ("generator", "batch", "k", "stage", "operators", "graphs", "MB read and written"),
        (
            (
                generator(row),
                row["batch"],
                row["k"],
                row["stage"],
                row["operators"],
                row.get("graphs", ""),
                number(row["megabytes"]),
            )
            for row in document["rows"]
        ),
    )
    if document["kernels"]:
        lines.append("")
        lines += table(
            ("model", "k", "kernels", "copies", "busy, ms"),
            (
                (row["model"], row["k"], row["kernels"], row["copies"], number(row["busy_ms"]))
                for row in document["kernels"]
            ),
        )
    return lines


def floor_table(document: Document) -> list[str]:
    """Stages, refinement for each number of updates."""
    rows = [row for row in document["rows"] if row["stage"] == "refine" or row["k"] == document["rows"][0]["k"]]
    return table(
        ("generator", "stage", "k", "MFLOP", "kB in and out", "barriers"),
        (
            (
                generator(row),
                row["stage"],
                row["k"],
                number(row["megaflop"]),
                number(row["kilobytes"]),
                row["barriers"],
            )
            for row in rows
        ),
    )


def bound_table(document: Document) -> list[str]:
    """Stages, refinement and the whole for each number of updates."""
    each_k, first = ("refine", "core"), document["rows"][0]["k"]
    return table(
        ("stage", "k", "transforms, ms", "products", "other calls", "sum, ms", "measured, ms (p50 / p99)", "share"),
        (
            (
                row["stage"],
                row["k"],
                f"{sum(row['transforms'].values())}: {number(row['transforms_ms'])}",
                f"{row['products']}: {number(row['products_ms'])}",
                f"{row['calls']}: {number(row['calls_ms'])}",
                number(row["sum_ms"]),
                both(row["measured_ms"]),
                number(row["sum_over_measured"], 2),
            )
            for row in document["rows"]
            if row["k"] == first or row["stage"] in each_k
        ),
    )


def verdict_table(document: Document) -> list[str]:
    """What a long form came to, a line for each figure; figures within figures have dotted names."""
    (row,) = document["rows"]

    def flat(value: Row, prefix: str = "") -> Iterator[tuple[str, object]]:
        for key, each in value.items():
            if key in LISTED_ELSEWHERE:
                continue
            if isinstance(each, dict):
                yield from flat(each, f"{prefix}{key}.")
            else:
                yield f"`{prefix}{key}`", number(each, 4) if isinstance(each, float) else each

    lines = [("Held" if row["held"] else "**Did not hold**") + f", {row['seconds'] / 60:.1f} minutes.", ""]
    return lines + table(("", ""), flat(row))


TABLES = {
    "bound": bound_table,
    "floor": floor_table,
    "core": core_table,
    "http": http_table,
    "sizing": sizing_table,
    "start": start_table,
    "train": train_table,
    "adaptive": adaptive_table,
    "scaling": scaling_table,
    "trace": trace_table,
}


def draw_core(document: Document, file: Path) -> None:
    """Where the time of one design goes, and what each designer's time buys."""
    rows = [row for row in document["rows"] if row["batch"] == 1] or document["rows"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    own = [row for row in rows if row["designer"].startswith("k=")]
    height = [0.0] * len(own)
    for stage in STAGES:
        spent = [(row["stages_ms"].get(stage) or {"p50": 0.0})["p50"] for row in own]
        if any(spent):
            left.bar([row["designer"] for row in own], spent, bottom=height, label=stage)
            height = [below + each for below, each in zip(height, spent, strict=True)]
    left.set(ylabel="ms, median", title="Stages of a design")
    left.legend()
    for row in rows:
        right.plot(row["core_ms"]["p50"], row["quality"]["noise_reduction_db"], "o", label=row["designer"])
    right.set(
        xscale="log",
        xlabel="core time, ms, median",
        ylabel="noise reduction on the true paths, dB",
        title="Designers",
    )
    low, high = right.get_xlim()
    ticks = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]
    right.set_xticks([each for each in ticks if low <= each <= high])
    right.xaxis.set_major_formatter(ScalarFormatter())
    right.xaxis.set_minor_formatter(NullFormatter())
    right.legend(fontsize="small")
    right.grid(alpha=0.3)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_scaling(document: Document, file: Path) -> None:
    """A panel for each axis."""
    axes = list(dict.fromkeys(row["axis"] for row in document["rows"]))
    figure, panels = plt.subplots(1, len(axes), figsize=(4 * len(axes), 3.6), layout="constrained", squeeze=False)
    for axis, panel in zip(axes, panels[0], strict=True):
        rows = [row for row in document["rows"] if row["axis"] == axis]
        for by, what in dict.fromkeys((row["by"], row["what"]) for row in rows):
            own = [row for row in rows if (row["by"], row["what"]) == (by, what)]
            panel.plot(
                [row["value"] for row in own], [row["ms"]["p50"] for row in own], "o-", label=f"{by}: {what}"
            )
        if axis != "updates":
            panel.set(xscale="log", yscale="log")
            ticks = sorted({row["value"] for row in rows})
            panel.set_xticks(ticks, [str(each) for each in ticks])
            panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set(xlabel=axis, ylabel="ms, median")
        panel.legend(fontsize="small")
        panel.grid(alpha=0.3)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_soak(document: Document, file: Path) -> None:
    """Resident memory over the run."""
    (row,) = document["rows"]
    asked, resident = zip(*row["resident_bytes"], strict=True)
    figure, panel = plt.subplots(figsize=(6, 3), layout="constrained")
    panel.plot([each / 1e3 for each in asked], [each / 1e6 for each in resident])
    panel.set(xlabel="requests, thousands", ylabel="resident memory, MB", ylim=(0, 1.2 * max(resident) / 1e6))
    panel.set_title(f"drift after warming up: {100 * row['drift']:+.2f} %")
    panel.grid(alpha=0.3)
    figure.savefig(file, dpi=110)
    plt.close(figure)


PICTURES: dict[str, Callable[[Document, Path], None]] = {
    "core": draw_core,
    "scaling": draw_scaling,
    "soak": draw_soak,
}
