"""Compose a report about a design, to be handed over: an HTML page with tables and plots."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc import answers
from prime_anc.cli import tables
from prime_anc.cli.measured import Measured
from prime_anc.cli.service import Ask, wiener
from prime_anc.inputs import ears
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from prime_anc.options import ObjectiveFields
from prime_anc.plots import TICKS_HZ

Json = dict[str, Any]
Numbers = Sequence[float] | NDArray[np.floating]

_BINS = np.unique(np.round(np.geomspace(15, 22_000, 500) * DESIGN_N_FFT / SAMPLE_RATE_HZ).astype(int))
_HZ = _BINS * (SAMPLE_RATE_HZ / DESIGN_N_FFT)
# Samples at 48 kHz for which what latency costs is shown.
LATENCIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
REALISATIONS: Mapping[str, Json] = {
    "6 sections, q1.31": {"form": "sos", "n_sections": 6, "number_format": "q1.31"},
    "12 sections, q1.31": {"form": "sos", "n_sections": 12, "number_format": "q1.31"},
    "512 taps, q1.15": {"form": "fir", "n_taps": 512, "number_format": "q1.15"},
    "2048 taps, q1.15": {"form": "fir", "n_taps": 2048, "number_format": "q1.15"},
}

# Light colours whatever the desktop's, and no figure, row or heading cut at a page's end.
_STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1rem }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ccc; vertical-align: top }
td:first-child, th:first-child, .about td { text-align: left } td { overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .3rem } figure { margin: 0 } svg { width: 100%; height: auto }
.warning { color: #8a3b00 }
@media print {
  @page { size: A4; margin: 15mm }
  body { font-size: 9pt; margin: 0; max-width: none; padding: 0 }
  td, th { padding: 0 .6rem } thead { display: table-header-group } tr, figure, .warning { break-inside: avoid }
  h2 { break-after: avoid } * { print-color-adjust: exact } .screen { display: none }
}
"""


def compose(ask: Ask, ear: Measured, subject: Sequence[str], verification: Json | None) -> str:
    """Compose the page.

    Parameters
    ----------
    ask
        Asks the service that designs the filters.
    ear
        The measurements, and options.
    subject
        Words for the heading: whose filter it is.
    verification
        Answer of a verification, if there is one.
    """
    body = ear.body
    design = ask("/refine", body | {"leave_one_out": len(ear.conditions) > 1}).json()
    rival = wiener(ask, body)
    shown = tables.beside_wiener(design, rival)
    late = [ask("/refine", body | {"latency_samples": item}).json()["prediction"] for item in LATENCIES]
    verdicts = [found for file in ear.files for found in ears.verdicts(file)]
    heading = escape(", ".join(("Control filter", *subject)))
    taps = np.asarray(design["fir"], "<f4").tobytes()
    about = [
        ("Date", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
        ("Subject", ", ".join(subject)),
        *(("Measurement", f"{name}: {_verdict_text(found)}") for name, found in verdicts),
        *(
            ("Option", f"{name} {'a curve' if isinstance(value, dict) else value}")
            for name, value in ear.options.items()
        ),
        ("Filter", f"2048 taps at 48000 Hz, SHA-256 {hashlib.sha256(taps).hexdigest()[:12]}"),
        ("Program", f"prime-anc {version('prime-anc')}"),
    ]
    parts = [
        f"<h1>{heading}</h1>",
        _reductions("Predicted", shown["prediction"]),
        *_findings((*design["warnings"], *ear.about.get("warnings", ()))),
        table("Design", (), about, "about"),
        *_verified(verification),
        *_tables("Predicted", shown, answers.DesignAnswer),
        *_plots(design, rival, late),
        *_loop(design, ear.conditions),
        table("Margins of all plants, worst at ±3 dB", *tables.of_rows(ear.about.get("plants", ()))),
        table("On hardware", *tables.of_rows(_realisations(ask, ear, design))),
        '<p class="screen"><a download="control_filter.f32" href="data:application/octet-stream;base64,'
        f'{base64.b64encode(taps).decode()}">2048 taps, little-endian float32</a></p>',
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{heading}</title><style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )


def _verdict_text(verdict: Json | None) -> str:
    if verdict is None:
        return "no calibration of this program"
    codes = ", ".join(str(item.get("code")) for item in verdict.get("reasons", ()))
    return f"calibration NOT passed ({codes})" if codes else "calibration passed"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Compose a table whose head is repeated on every page; nothing without rows."""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    heading = f"<h2>{title}</h2>" if title else ""
    whole = f'{heading}<table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>'
    return whole if body else ""


def _tables(title: str, answer: Json, kind: type[answers.Answer]) -> list[str]:
    """Compose the tables of an answer, with the texts of its figures."""
    texts = answers.texts(kind)
    found = list(tables.tables(answer))
    figures = [[name, value, texts.get(name, "")] for name, value in found.pop()[1]]
    return [table(title, (), figures, "about"), *(table("", *item) for item in found)]


def _findings(found: Iterable[Json]) -> list[str]:
    texts = ((escape(item["code"]), escape(item["detail"])) for item in found)
    return [f'<p class="warning"><b>{code}</b>: {detail}</p>' for code, detail in texts]


def _verified(answer: Json | None) -> list[str]:
    """Compose what a verification measured, beside the prediction, if there is one."""
    if answer is None:
        return []
    shown = tables.beside_predicted(answer)
    return [
        *_tables("Verified", shown, answers.VerificationAnswer),
        *_findings(answer["diagnosis"]),
        _reductions("Measured", shown["measured"]),
    ]


def _realisations(ask: Ask, ear: Measured, design: Json) -> list[Json]:
    """Return what the filter is predicted to reach on hardware."""
    kept = ["model", *(field.name for field in fields(ObjectiveFields))]
    body = ear.paths | {name: ear.options[name] for name in kept if name in ear.options}
    rows = []
    for name, target in REALISATIONS.items():
        answer = ask("/export", body | {"fir": design["fir"], "sign": design["sign"], "target": target}).json()
        reached_db = answer["prediction"]["mean_noise_reduction_db"]
        rows.append({"form": name, "mean_noise_reduction_db": reached_db, "loss_db": answer["loss_db"]})
    return rows


def _loop(design: Json, conditions: Sequence[Json]) -> list[str]:
    """Draw the loops through controller and feedback paths, if there are any."""
    sign = 1 if design["sign"] == "minus" else -1
    controlled = _controller(design["controller"]) if "controller" in design else np.zeros(N_BINS)
    through = {"secondary": controlled, "feedback": np.fft.rfft(design["fir"], DESIGN_N_FFT)}
    loops = {}
    for path in conditions:
        present = [name for name in through if path.get(name) is not None]
        parts = [through[name] * np.fft.rfft(ears.response_of(path[name]), DESIGN_N_FFT) for name in present]
        loops[path["label"]] = sign * np.sum(parts, 0)[_BINS]
    return [nyquist(loops)] if "loop" in design else []


def _controller(running: Json) -> NDArray[np.complex128]:
    """Evaluate a controller on the design grid."""
    sections = Sections(np.array(running["sos"], np.float64), running["sample_rate"])
    return Controller(sections, 1e-6 * running["latency_us"]).on_bins


def _reductions(title: str, found: Json) -> str:
    """Draw all noise reductions per band, those of conditions too."""
    key = "noise_reduction_db"
    lines = {name: value for name, value in found.items() if name.endswith(key) and isinstance(value, list)}
    lines |= {item["label"]: item[key] for item in found.get("conditions", ())}
    return plot(f"{title} noise reduction per band, dB over Hz", found["band_centre_hz"], lines, is_log=True)


def _plots(design: Json, rival: Json, late: Sequence[Json]) -> list[str]:
    gain = {
        "|W|": np.fft.rfft(design["fir"], DESIGN_N_FFT),
        "Wiener filter": np.fft.rfft(rival["fir"], DESIGN_N_FFT),
    }
    if "controller" in design:
        gain["|K|"] = _controller(design["controller"])
    levels = {name: 20 * np.log10(np.maximum(np.abs(item[_BINS]), 1e-9)) for name, item in gain.items()}
    latency = {
        "mean noise reduction": [item["mean_noise_reduction_db"] for item in late],
        "loudest band, by how much it is louder": [max(0.0, -min(item["noise_reduction_db"])) for item in late],
    }
    return [
        plot("Gain, dB over Hz", _HZ, levels, is_log=True),
        plot("What latency costs, dB over samples at 48 kHz", LATENCIES, latency),
    ]


WIDTH, HEIGHT, MARGIN = 860, 280, 40
LOWEST_DB = -80.0
COLOURS = ("#0b5cad", "#b8470b", "#17733f", "#7a3fa0", "#8a6d00", "#5b6470")
# Of four units beside five.
NYQUIST_HEIGHT = 669
# Where |1 + L| is below, noise becomes more than 6 dB louder.
LEAST_DISTANCE = 0.5


def plot(title: str, x: Numbers, lines: Mapping[str, Numbers], *, is_log: bool = False) -> str:
    """Draw lines in dB over common x."""
    scale: Any = np.log10 if is_log else np.asarray
    levels = {name: np.clip(line, LOWEST_DB, None) for name, line in lines.items()}
    low = 10 * np.floor(min(0, *map(np.min, levels.values())) / 10)
    high = 10 * np.ceil(max(10, *map(np.max, levels.values())) / 10)
    ticks = [tick for tick in TICKS_HZ if x[0] <= tick <= x[-1]] if is_log else x
    drawn = {name: np.stack((scale(x), line), 1) for name, line in levels.items()}
    across = {f"{tick:g}": float(scale(tick)) for tick in ticks}
    up = np.arange(low, high + 1, 10 if high - low <= 60 else 20)
    return _figure(title, ((scale(x[0]), low), (scale(x[-1]), high)), across, up, drawn)


def nyquist(loops: Mapping[str, NDArray[np.complexfloating]]) -> str:
    """Draw loops in the complex plane, with the circle that they have to stay out of."""
    circle = -1 + LEAST_DISTANCE * np.exp(2j * np.pi * np.linspace(0, 1, 61))
    curves = {**loops, "noise becomes over 6 dB louder inside": circle}
    drawn = {name: np.stack((curve.real, curve.imag), 1).clip(-99, 99) for name, curve in curves.items()}
    across = {str(tick): tick for tick in range(-3, 3)}
    return _figure("Nyquist plot of the loop L", ((-3, -2), (2, 2)), across, range(-2, 3), drawn, NYQUIST_HEIGHT)


def _figure(
    title: str,
    corners: tuple[tuple[float, float], tuple[float, float]],
    across: Mapping[str, float],
    up: Iterable[float],
    lines: Mapping[str, NDArray[Any]],
    height: int = HEIGHT,
) -> str:
    """Draw lines [n, 2] between two corners as SVG, with a grid at the ticks of both axes and a legend."""
    first, last = map(np.array, corners)

    def places(points: Any) -> NDArray[Any]:
        share = (np.asarray(points) - first) / (last - first)
        return (MARGIN, height - 25) + share * (WIDTH - 2 * MARGIN, 45 - height)

    grid, texts, drawn, names = [], [], [], []
    for text, value in across.items():
        x, _ = places((value, first[1]))
        grid.append(f"M{x:.1f} 20V{height - 25}")
        texts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{text}</text>')
    for value in up:
        _, y = places((first[0], value))
        grid.append(f"M{MARGIN} {y:.1f}H{WIDTH - MARGIN}")
        texts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for n, (name, points) in enumerate(lines.items()):
        colour, path = COLOURS[n % len(COLOURS)], " ".join(f"{x:.1f},{y:.1f}" for x, y in places(points))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.7"/>')
        names.append(f'<span style="color:{colour}">— {escape(name)}</span>')
    return (
        f'<figure><figcaption><b>{title}</b> {" ".join(names)}</figcaption><svg role="img" aria-label="{title}" '
        f'viewBox="0 0 {WIDTH} {height}" font-size="12"><path d="{"".join(grid)}" fill="none" stroke="#ddd"/>'
        f"{''.join(texts)}{''.join(drawn)}</svg></figure>"
    )
