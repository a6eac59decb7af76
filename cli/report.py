"""Compose one self-contained HTML page about a design, with plots, to be handed over on screen or printed."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli.service import ServiceClient
from cli.tables import loop_text, mean_of
from cli.words import for_command
from synthesis.options import ObjectiveFields

Json = dict[str, Any]

LATENCIES = (0, 1, 2, 4, 8, 16, 32)
N_FFT = 32_768
_BINS = np.unique(np.round(np.geomspace(15, 22_000, 500) * N_FFT / 48_000).astype(int))
_HZ = _BINS * (48_000 / N_FFT)
LOG_TICKS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
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
table { border-collapse: collapse; margin: .5rem 0 } caption { text-align: left; font-weight: 600 }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ccc; vertical-align: top }
td:first-child, th:first-child { text-align: left } figure { margin: 1.5rem 0 0 }
.about td { text-align: left; overflow-wrap: anywhere }
svg { width: 100%; height: auto; font-size: 12px } svg path { stroke: #ddd } svg text { fill: #444 }
polyline { fill: none; stroke-width: 1.8 } .warning { color: #8a3b00 }
@media print {
  @page { size: A4; margin: 15mm }
  body { font-size: 10pt; margin: 0; max-width: none; padding: 0 }
  thead { display: table-header-group } tr, figure, .warning { break-inside: avoid } h2, caption { break-after: avoid }
  * { print-color-adjust: exact } .screen { display: none }
}
"""


@dataclass(frozen=True)
class About:
    """What a report says of its subject besides the design."""

    listener: str = ""
    ear: str = ""
    # Measurements, by the name of their file: its calibration's verdict, if it has one.
    verdicts: Mapping[str, Json | None] | None = None
    date: str = ""

    def rows(self, design: Json) -> list[tuple[str, str]]:
        """Return names and values."""
        model = design["model"]
        taps = hashlib.sha256(np.asarray(design["fir"], "<f4").tobytes()).hexdigest()
        rows = [
            ("Date", self.date or datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
            ("Listener", self.listener),
            ("Ear", self.ear),
            *(("Measurement", f"{name}: {_verdict_text(found)}") for name, found in (self.verdicts or {}).items()),
            ("Method", f"{design['method']}, {design['refinement']['applied']} updates, sign {design['sign']}"),
            (
                "Model",
                f"{model['name']}, version {model['version']}, {model['digest'].removeprefix('sha256:')[:12]}",
            ),
            ("Filter", f"2048 taps at 48000 Hz, SHA-256 {taps[:12]}"),
            ("Program", f"prime-anc {version('prime-anc')}"),
        ]
        return [(name, text) for name, text in rows if text]


def _verdict_text(verdict: Json | None) -> str:
    if verdict is None:
        return "no calibration of this program"
    reasons = ", ".join(str(item.get("code")) for item in verdict.get("reasons", ()))
    outcome = "calibration passed" if verdict.get("passed") else "calibration NOT passed"
    return f"{outcome} ({reasons})" if reasons else outcome


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
    leave_one_out = len(paths.get("conditions", ())) > 1
    design = service.ask("/refine", paths | options | {"leave_one_out": leave_one_out}).json()
    rival = service.ask("/refine", paths | options | {"method": "wmmse", "k": 0}).json()
    both = {"designed": design, "Wiener (wmmse)": rival}
    hz = design["prediction"]["band_centre_hz"]
    reduction = {name: item["prediction"]["noise_reduction_db"] for name, item in both.items()}
    for name in ("feedforward", "feedback"):  # with a controller
        if share := design["prediction"].get(f"{name}_noise_reduction_db"):
            reduction[f"{name} share"] = share
    for item in design["prediction"].get("conditions", ()):
        reduction[item["label"]] = item["noise_reduction_db"]
    gain = {name: _decibels(np.fft.rfft(item["fir"], N_FFT)) for name, item in both.items()}
    curve = [
        service.ask("/refine", paths | options | {"latency_samples": float(item)}).json()["prediction"]
        for item in LATENCIES
    ]
    latency = {
        "mean noise reduction": [item["mean_noise_reduction_db"] for item in curve],
        "loudest band, by how much it is louder": [max(0.0, -min(item["noise_reduction_db"])) for item in curve],
    }
    drawing = (
        plot("Predicted noise reduction per band, dB, over Hz", hz, reduction, is_log=True)
        + plot("Control filter: |W|, dB, over Hz", _HZ, _at_hz(gain), is_log=True)
        + plot("What latency costs: dB over samples at 48 kHz", LATENCIES, latency)
    )
    if loops := _loop_gains(paths, design["fir"]):
        drawing += plot("Loop through the feedback path: |W F|, dB, over Hz", _HZ, _at_hz(loops), is_log=True)
    return _page(service, paths, options, design, rival, drawing, about)


def _at_hz(spectra: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Pick the values on N_FFT points at the frequencies that are drawn."""
    return {name: item[_BINS] for name, item in spectra.items()}


WIDTH, HEIGHT, MARGIN = 860, 280, 40
LOWEST_DB = -80.0
COLOURS = ("#0b5cad", "#b8470b", "#17733f", "#7a3fa0", "#8a6d00", "#5b6470")


def plot(
    title: str,
    x: Sequence[float] | NDArray[np.floating],
    lines: Mapping[str, Sequence[float] | NDArray[np.floating]],
    *,
    is_log: bool = False,
) -> str:
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
    parts = [
        f'<path d="M{at:.1f} 20V{HEIGHT - 25}"/>'
        f'<text x="{at:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{tick:g}</text>'
        for tick, at in zip(ticks, across(ticks), strict=True)
    ]
    levels = np.arange(low, high + 1, 10 if high - low <= 60 else 20)
    parts += [
        f'<path d="M{MARGIN} {at:.1f}H{WIDTH - MARGIN}"/>'
        f'<text x="{MARGIN - 6}" y="{at + 4:.1f}" text-anchor="end">{level:g}</text>'
        for level, at in zip(levels, down(levels), strict=True)
    ]
    names = []
    for n, (name, values) in enumerate(lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        points = " ".join(f"{right:.1f},{at:.1f}" for right, at in zip(across(x), down(values), strict=True))
        parts.append(f'<polyline points="{points}" style="stroke:{colour}"/>')
        names.append(f'<span style="color:{colour}">— {html.escape(name)}</span>')
    return (
        f"<figure><figcaption>{html.escape(title)}: {' '.join(names)}</figcaption>"
        f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _page(
    service: ServiceClient, paths: Json, options: Json, design: Json, rival: Json, drawing: str, about: About
) -> str:
    warnings = "".join(
        f'<p class="warning"><b>{html.escape(item["code"])}</b>: {html.escape(for_command(item["detail"]))}</p>'
        for item in design["warnings"]
    )
    taps = base64.b64encode(np.asarray(design["fir"], "<f4").tobytes()).decode()
    subject = ", ".join(part for part in ("Control filter", about.listener, about.ear) if part)
    facts = "".join(f"<tr><td>{name}</td><td>{html.escape(text)}</td></tr>" for name, text in about.rows(design))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(subject)}</title><style>{_STYLE}</style><h1>{html.escape(subject)}</h1>"
        f'<table class="about"><tbody>{facts}</tbody></table>{warnings}{_figures(design, rival)}{drawing}'
        f"{_bands(design, rival)}{_worn(design)}{_hardware(service, paths, options, design)}"
        f'<p class="screen"><a download="control_filter.f32" href="data:application/octet-stream;base64,{taps}">'
        "2048 taps, little-endian float32</a></p></html>\n"
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Compose a table whose head is repeated on every page."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{html.escape(title)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _figures(design: Json, rival: Json) -> str:
    both = design["prediction"], rival["prediction"]

    def row(name: str, key: str) -> tuple[str, ...]:
        return name, *(f"{item[key]:.2f} dB" for item in both)

    rows = [
        row(f"mean noise reduction, {mean_of(both[0])}", "mean_noise_reduction_db"),
        row("nine in ten true means lie within ±", "interval_db"),
        row("amplification", "amplification_db"),
        row("largest |W|", "max_gain_db"),
    ]
    level, loss = design["prediction"].get("level_reduction_db"), design["prediction"].get("sensitivity_db")
    if level:
        rows += [("level of the noise, A-weighted, lower by", f"{level['a_weighted']:.1f} dB", "")]
    if loss:
        rows += [("lost if the loudspeaker is 1 dB off", f"{loss['gain_1_db']:.1f} dB", "")]
        rows += [("lost if it is a sample late", f"{loss['delay_1_sample']:.1f} dB", "")]
    return table("Predicted", ("", "designed", "Wiener filter"), rows)


def _bands(design: Json, rival: Json) -> str:
    unknown = design["prediction"].get("unknown_bands_hz") or ()
    columns = (item["prediction"]["noise_reduction_db"] for item in (design, rival))
    rows = [
        (f"{hz:g} Hz{' (not measured)' if hz in unknown else ''}", f"{ours:.1f} dB", f"{theirs:.1f} dB")
        for hz, ours, theirs in zip(design["prediction"]["band_centre_hz"], *columns, strict=True)
    ]
    return table("Noise reduction per one-third octave", ("", "designed", "Wiener filter"), rows)


def _worn(design: Json) -> str:
    """Compose the figures per measurement, and those of the loop through a feedback path."""
    rows = [
        (
            item["label"],
            f"{item['mean_noise_reduction_db']:.1f} dB",
            f"{item['left_out_noise_reduction_db']:.1f} dB",
            f"{item['amplification_db']:.2f} dB",
        )
        for item in design["prediction"].get("conditions", ())
    ]
    head = ("", "noise reduction", "if not measured", "amplification")
    found = table("Measurement by measurement", head, rows) if rows else ""
    if loop := design.get("loop"):
        found += f"<h2>Loop</h2><p>{loop_text(loop)}.</p>"
    return found


def _loop_gains(paths: Json, fir: Sequence[float]) -> dict[str, NDArray[np.float64]]:
    """Compute |W F| in dB of measurements with a feedback path, by label."""
    response = np.fft.rfft(fir, N_FFT)
    return {
        path.get("label", "designed"): _decibels(response * _spectrum(path["feedback"]))
        for path in paths.get("conditions", [paths])
        if path.get("feedback") is not None
    }


def _spectrum(path: Json) -> NDArray[np.complex128]:
    """Compute the spectrum of a request's path on N_FFT points."""
    if "impulse_response" in path:
        return np.fft.rfft(path["impulse_response"], N_FFT)
    if "complex64" in path:
        spectrum = np.frombuffer(base64.b64decode(path["complex64"]), "<c8")
    else:
        spectrum = np.array(path["real"]) + 1j * np.array(path["imag"])
    return np.fft.rfft(np.fft.irfft(spectrum)[:N_FFT], N_FFT)


def _decibels(spectrum: NDArray[np.complexfloating]) -> NDArray[np.float64]:
    return 20 * np.log10(np.maximum(np.abs(spectrum), 1e-9))


def _hardware(service: ServiceClient, paths: Json, options: Json, design: Json) -> str:
    kept = ["model", *(field.name for field in fields(ObjectiveFields))]
    chosen = {name: options[name] for name in kept if name in options}
    rows = [_realised(service, paths | chosen, design, target) for target in REALISATIONS]
    return table("On hardware", ("form", "noise reduction", "lost"), rows)


def _realised(service: ServiceClient, paths: Json, design: Json, target: Json) -> tuple[str, ...]:
    body = paths | {"fir": design["fir"], "sign": design["sign"], "target": target}
    found = service.ask("/export", body).json()
    size = f"{target['n_sections']} sections" if target["form"] == "sos" else f"{target['n_taps']} taps"
    reduction_db, loss_db = found["prediction"]["mean_noise_reduction_db"], found["loss_db"]
    return f"{size}, {target['number_format']}", f"{reduction_db:.1f} dB", f"{loss_db:.1f} dB"
