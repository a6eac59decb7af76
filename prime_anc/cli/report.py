"""Compose a report about a design, to be handed over: an HTML page with tables and plots."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.cli.service import ServiceClient
from prime_anc.cli.tables import loop_text, mean_of, verdict, wiener_name
from prime_anc.inputs.ears import response_of
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from prime_anc.options import ObjectiveFields

Json = dict[str, Any]
Numbers = Sequence[float] | NDArray[np.floating]

_BINS = np.unique(np.round(np.geomspace(15, 22_000, 500) * DESIGN_N_FFT / SAMPLE_RATE_HZ).astype(int))
_HZ = _BINS * (SAMPLE_RATE_HZ / DESIGN_N_FFT)
LOG_TICKS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
# Samples at 48 kHz for which what latency costs is shown.
LATENCIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
REALISATIONS: Sequence[Json] = (
    {"form": "sos", "n_sections": 6, "number_format": "q1.31"},
    {"form": "sos", "n_sections": 12, "number_format": "q1.31"},
    {"form": "fir", "n_taps": 512, "number_format": "q1.15"},
    {"form": "fir", "n_taps": 2048, "number_format": "q1.15"},
)

# Light colours whatever the desktop's, and no figure, row or heading cut at a page's end.
_STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff }
table { border-collapse: collapse; margin: .5rem 0 1rem }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ccc; vertical-align: top }
td:first-child, th:first-child, .about td { text-align: left } td { overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .3rem } figure { margin: 0 } svg { width: 100%; height: auto }
.nyquist { max-width: 26rem } .warning { color: #8a3b00 }
@media print {
  @page { size: A4; margin: 15mm }
  body { font-size: 9pt; margin: 0; max-width: none; padding: 0 }
  td, th { padding: 0 .6rem } thead { display: table-header-group } tr, figure, .warning { break-inside: avoid }
  h2 { break-after: avoid } * { print-color-adjust: exact } .screen { display: none }
}
"""


@dataclass(frozen=True)
class About:
    """What a report says of its subject besides the design."""

    listener: str = ""
    ear: str = ""
    # Names of measurements, and their calibrations' verdicts, if they have one.
    verdicts: Sequence[tuple[str, Json | None]] = ()
    # Plants and warnings of the controller.
    controller: Mapping[str, Any] = field(default_factory=dict)
    # Answer of a verification.
    verification: Json | None = None
    date: str = ""

    def rows(self, design: Json, paths: Json, options: Json) -> list[tuple[str, str]]:
        """Return names and values."""
        model, running = design["model"], paths.get("controller")
        taps = hashlib.sha256(np.asarray(design["fir"], "<f4").tobytes()).hexdigest()
        shown = (f"{name} {'a curve' if isinstance(value, dict) else value}" for name, value in options.items())
        rows = [
            ("Date", self.date or datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
            ("Listener", self.listener),
            ("Ear", self.ear),
            *(("Measurement", f"{name}: {_verdict_text(found)}") for name, found in self.verdicts),
            ("Method", f"{design['method']}, {design['refinement']['applied']} updates, sign {design['sign']}"),
            ("Options", ", ".join(shown)),
            (
                "Model",
                f"{model['name']}, version {model['version']}, {model['digest'].removeprefix('sha256:')[:12]}",
            ),
            ("Filter", f"2048 taps at 48000 Hz, SHA-256 {taps[:12]}"),
            ("Controller", _controller_text(running) if running else ""),
            ("Program", f"prime-anc {version('prime-anc')}"),
        ]
        return [(name, text) for name, text in rows if text]


def _verdict_text(verdict: Json | None) -> str:
    if verdict is None:
        return "no calibration of this program"
    reasons = ", ".join(str(item.get("code")) for item in verdict.get("reasons", ()))
    outcome = "calibration passed" if verdict.get("passed") else "calibration NOT passed"
    return f"{outcome} ({reasons})" if reasons else outcome


def _controller_text(running: Json) -> str:
    digest = hashlib.sha256(np.asarray(running["sos"], "<f8").tobytes()).hexdigest()
    return (
        f"{len(running['sos'])} sections at {running['sample_rate']:g} Hz, {running.get('number_format', 'float64')}, "
        f"{running.get('latency_us', 0):g} µs late, SHA-256 {digest[:12]}"
    )


def compose(service: ServiceClient, paths: Json, options: Json, about: About) -> str:
    """Compose the page.

    Parameters
    ----------
    service
        Service that designs the filters.
    paths, options
        Fields of a request.
    about
        Whom and what the report is about.

    Raises
    ------
    Failed
        The service refuses.
    """
    body = paths | options
    design = service.ask("/refine", body | {"leave_one_out": len(paths.get("conditions", ())) > 1}).json()
    rival, rival_name = service.wiener(body), wiener_name("controller" in paths)
    late = [service.ask("/refine", body | {"latency_samples": item}).json()["prediction"] for item in LATENCIES]
    subject = escape(", ".join(part for part in ("Control filter", about.listener, about.ear) if part))
    taps = base64.b64encode(np.asarray(design["fir"], "<f4").tobytes()).decode()
    parts = [
        f"<h1>{subject}</h1>",
        _figures(design["prediction"], rival["prediction"], rival_name),
        _reductions({"designed": design, rival_name: rival}),
        *_verified(about.verification),
        *(
            f'<p class="warning"><b>{escape(item["code"])}</b>: {escape(item["detail"])}</p>'
            for item in (*design["warnings"], *about.controller.get("warnings", ()))
        ),
        table("Design", (), about.rows(design, paths, options), "about"),
        _bands(design["prediction"], rival["prediction"], rival_name),
        *_plots({"designed": design, rival_name: rival}, paths, late),
        *_loop(design, paths, [name for name, _ in about.verdicts]),
        _plants(about.controller.get("plants", ())),
        _worn(design["prediction"].get("conditions", ())),
        _hardware(service, paths, options, design),
        f'<p class="screen"><a download="control_filter.f32" href="data:application/octet-stream;base64,{taps}">'
        "2048 taps, little-endian float32</a></p>",
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{subject}</title><style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Compose a table whose head is repeated on every page; nothing without rows."""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    return f'{heading}<table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>'


def _figures(found: Json, rival: Json, rival_name: str) -> str:
    rows = [
        (name, *(f"{item[key]:.2f} dB" for item in (found, rival)))
        for name, key in (
            (f"mean noise reduction, {mean_of(found)}", "mean_noise_reduction_db"),
            ("nine in ten true means lie within ±", "interval_db"),
            ("amplification", "amplification_db"),
            ("largest |W|", "max_gain_db"),
        )
    ]
    if level := found.get("level_reduction_db"):
        rows += [("level of the noise, A-weighted, lower by", f"{level['a_weighted']:z.1f} dB", "")]
    if loss := found.get("sensitivity_db"):
        rows += [("lost if the loudspeaker is 1 dB off", f"{loss['gain_1_db']:z.1f} dB", "")]
        rows += [("lost if it is a sample at 48 kHz late", f"{loss['delay_1_sample']:z.1f} dB", "")]
    return table("Predicted", ("", "designed", rival_name), rows)


def _verified(found: Json | None) -> list[str]:
    """Compose what a verification measured, beside the prediction, if there is one."""
    if found is None:
        return []
    measured, off = found["measured"], found["deviation_db"]
    mean = measured["mean_noise_reduction_db"]
    predicted = f"{mean - off:.1f} ± {found['predicted_interval_db']:.1f} dB; {verdict(found)}"
    reduction = np.array(measured["noise_reduction_db"])
    lines = {"predicted": reduction - found["band_deviation_db"], "measured": reduction}
    return [
        table("Verified", (), [("measured mean", f"{mean:.1f} dB"), ("predicted mean", predicted)], "about"),
        *(f"<p><b>{escape(item['code'])}</b>: {escape(item['detail'])}</p>" for item in found["diagnosis"]),
        plot("Measured noise reduction per band, dB over Hz", measured["band_centre_hz"], lines, is_log=True),
    ]


def _bands(found: Json, rival: Json, rival_name: str) -> str:
    unknown = found.get("unknown_bands_hz") or ()
    rows = [
        (f"{hz:g} Hz{' (not measured)' if hz in unknown else ''}", f"{ours:z.1f} dB", f"{theirs:z.1f} dB")
        for hz, ours, theirs in zip(
            found["band_centre_hz"], found["noise_reduction_db"], rival["noise_reduction_db"], strict=True
        )
    ]
    return table("Noise reduction per one-third octave", ("", "designed", rival_name), rows)


def _worn(conditions: Iterable[Json]) -> str:
    rows = [
        (
            item["label"],
            f"{item['mean_noise_reduction_db']:z.1f} dB",
            f"{item['left_out_noise_reduction_db']:z.1f} dB",
            f"{item['amplification_db']:.2f} dB",
        )
        for item in conditions
    ]
    return table("Measurement by measurement", ("", "noise reduction", "if not measured", "amplification"), rows)


def _hardware(service: ServiceClient, paths: Json, options: Json, design: Json) -> str:
    kept = ["model", *(field.name for field in fields(ObjectiveFields))]
    body = paths | {name: options[name] for name in kept if name in options}
    rows = []
    for target in REALISATIONS:
        sent = body | {"fir": design["fir"], "sign": design["sign"], "target": target}
        found = service.ask("/export", sent).json()
        size = f"{target['n_sections']} sections" if target["form"] == "sos" else f"{target['n_taps']} taps"
        reduction_db = found["prediction"]["mean_noise_reduction_db"]
        rows.append(
            (f"{size}, {target['number_format']}", f"{reduction_db:z.1f} dB", f"{found['loss_db']:z.1f} dB")
        )
    return table("On hardware", ("form", "noise reduction", "lost"), rows)


def _loop(design: Json, paths: Json, names: Sequence[str]) -> list[str]:
    """Compose margins and the Nyquist plot of the loop through a controller and feedback paths, if there is one."""
    if not (loop := design.get("loop")):
        return []
    sign = 1 if design["sign"] == "minus" else -1
    running = paths.get("controller")
    controlled = _controller(running)[_BINS] if running else 0
    filtered = np.fft.rfft(design["fir"], DESIGN_N_FFT)[_BINS]
    loops = {}
    for name, path in zip(names, paths.get("conditions", [paths]), strict=False):
        secondary, feedback = (
            np.fft.rfft(response_of(path[name]), DESIGN_N_FFT)[_BINS] if path.get(name) is not None else 0
            for name in ("secondary", "feedback")
        )
        loops[path.get("label") or name] = sign * (secondary * controlled + filtered * feedback)
    return [f"<h2>Loop as designed</h2><p>{loop_text(loop)}.</p>", nyquist(loops)]


def _plants(plants: Iterable[Json]) -> str:
    rows = [
        (
            plant["label"],
            f"{plant['gain_margin_db']:.1f} dB",
            f"{plant['phase_margin_deg']:.0f}°",
            f"{plant['max_sensitivity_db']:.1f} dB at {plant['nearest_hz']:.0f} Hz",
        )
        for plant in plants
    ]
    head = ("plant", "gain margin", "phase margin", "largest 1/|1+L|")
    return table("Margins of all plants, worst at ±3 dB", head, rows)


def _controller(running: Json) -> NDArray[np.complex128]:
    """Evaluate a request's controller on the design grid."""
    sections = Sections(np.array(running["sos"], np.float64), running["sample_rate"])
    return Controller(sections, 1e-6 * running.get("latency_us", 0)).on_bins


def _reductions(both: Mapping[str, Json]) -> str:
    """Draw the predicted noise reduction per band, with a controller its shares."""
    found = both["designed"]["prediction"]
    reduction = {name: item["prediction"]["noise_reduction_db"] for name, item in both.items()}
    for name in ("feedforward", "feedback"):
        if share := found.get(f"{name}_noise_reduction_db"):
            reduction[f"{name} share"] = share
    for item in found.get("conditions", ()):
        reduction[item["label"]] = item["noise_reduction_db"]
    return plot("Predicted noise reduction per band, dB over Hz", found["band_centre_hz"], reduction, is_log=True)


def _plots(both: Mapping[str, Json], paths: Json, late: Sequence[Json]) -> list[str]:
    gain = {f"|W| {name}": np.fft.rfft(item["fir"], DESIGN_N_FFT) for name, item in both.items()}
    if running := paths.get("controller"):
        gain["|K|"] = _controller(running)
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
# Part of the plane of L that a Nyquist plot shows: left, right and half height.
NYQUIST = (-3, 2, 1.6)
# Where |1 + L| is below, noise becomes more than 6 dB louder.
LEAST_DISTANCE = 0.5


def plot(title: str, x: Numbers, lines: Mapping[str, Numbers], *, is_log: bool = False) -> str:
    """Draw an SVG figure of lines over common x, with a grid and a legend."""
    scale = np.log10 if is_log else np.asarray
    all_values = np.concatenate([np.asarray(line) for line in lines.values()]).clip(LOWEST_DB)
    low, high = 10 * np.floor(min(all_values.min(), 0) / 10), 10 * np.ceil(max(all_values.max(), 10) / 10)

    def across(values: Any) -> NDArray[np.floating]:
        place = (scale(values) - scale(x[0])) / (scale(x[-1]) - scale(x[0]))
        return np.asarray(MARGIN + place * (WIDTH - 2 * MARGIN))

    def down(values: Any) -> NDArray[np.floating]:
        return np.asarray(HEIGHT - 25 - (np.clip(values, LOWEST_DB, None) - low) / (high - low) * (HEIGHT - 45))

    ticks = [log_tick for log_tick in LOG_TICKS if x[0] <= log_tick <= x[-1]] if is_log else list(x)
    levels = np.arange(low, high + 1, 10 if high - low <= 60 else 20)
    grid = [f"M{at:.1f} 20V{HEIGHT - 25}" for at in across(ticks)]
    grid += [f"M{MARGIN} {at:.1f}H{WIDTH - MARGIN}" for at in down(levels)]
    labels = [(at, HEIGHT - 10, "middle", tick) for at, tick in zip(across(ticks), ticks, strict=True)]
    labels += [(MARGIN - 6, at + 4, "end", level) for at, level in zip(down(levels), levels, strict=True)]
    drawn = {name: np.stack((across(x), down(values)), 1) for name, values in lines.items()}
    return _figure(title, f"0 0 {WIDTH} {HEIGHT}", grid, labels, drawn, 12)


def nyquist(loops: Mapping[str, NDArray[np.complexfloating]]) -> str:
    """Draw loops in the complex plane, with the circle that they have to stay out of."""
    left, right, half = NYQUIST
    grid = [f"M{at} {-half}V{half}" for at in range(left, right + 1)] + [
        f"M{left} {at}H{right}" for at in (-1, 0, 1)
    ]
    labels = [(at + 0.04, -0.04, "start", at) for at in range(left, right)]
    drawn = {name: np.stack((loop.real, -loop.imag), 1).clip(-99, 99) for name, loop in loops.items()}
    circle = f'<circle cx="-1" cy="0" r="{LEAST_DISTANCE}" fill="#b8470b" fill-opacity=".15"/>'
    title = "Nyquist plot of the loop L; inside the circle about -1 noise becomes over 6 dB louder"
    box = f"{left} {-half} {right - left} {2 * half}"
    return _figure(title, box, grid, labels, drawn, 0.12, circle, "nyquist")


def _figure(
    title: str,
    box: str,
    grid: Sequence[str],
    labels: Iterable[tuple[float, float, str, float]],
    lines: Mapping[str, NDArray[np.floating]],
    size: float,
    more: str = "",
    kind: str = "",
) -> str:
    """Compose a figure of lines [n, 2] with a legend; all in units of the view box, `size` that of text."""
    parts = [f'<path d="{"".join(grid)}" fill="none" stroke="#ddd" stroke-width="{size / 12:.3g}"/>', more]
    parts += [
        f'<text x="{x:.5g}" y="{y:.5g}" text-anchor="{anchor}" font-size="{size}" fill="#444">{text:g}</text>'
        for x, y, anchor, text in labels
    ]
    names = []
    for n, (name, points) in enumerate(lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        text = " ".join(f"{x:.5g},{y:.5g}" for x, y in points)
        parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{size / 7:.3g}"/>')
        names.append(f'<span style="color:{colour}">— {escape(name)}</span>')
    return (
        f'<figure class="{kind}"><figcaption><b>{escape(title)}</b> {" ".join(names)}</figcaption>'
        f'<svg role="img" aria-label="{escape(title)}" viewBox="{box}">{"".join(parts)}</svg></figure>'
    )
