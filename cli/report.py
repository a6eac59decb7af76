"""Compose one self-contained, printable HTML page about a design, with plots."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli.service import ServiceClient
from cli.tables import loop_text, mean_of

Json = dict[str, Any]

LATENCIES = (0, 1, 2, 4, 8, 16)
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

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse }
td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ccc }
td:first-child, th:first-child { text-align: left } figure { margin: 1.5rem 0 0 }
svg { width: 100%; height: auto; font-size: 12px } svg path { stroke: #ddd } svg text { fill: #444 }
polyline { fill: none; stroke-width: 1.8 } .warning { color: #8a3b00 }
"""


def compose(service: ServiceClient, paths: Json, options: Json) -> str:
    """Compose the page.

    Parameters
    ----------
    service
        Service that designs the filters.
    paths, options
        Fields of a request.

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
    return _page(service, paths, options, design, rival, drawing)


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
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg></figure>'
    )


def _page(service: ServiceClient, paths: Json, options: Json, design: Json, rival: Json, drawing: str) -> str:
    prediction = design["prediction"]
    rows = [
        (f"mean noise reduction, {mean_of(prediction)}", "mean_noise_reduction_db", "dB"),
        ("interval of that mean, ±", "interval_db", "dB"),
        ("amplification", "amplification_db", "dB"),
        ("largest |W|", "max_gain_db", "dB"),
    ]
    figures = "".join(
        f"<tr><td>{name}</td><td>{prediction[key]:.2f} {unit}</td>"
        f"<td>{rival['prediction'][key]:.2f} {unit}</td></tr>"
        for name, key, unit in rows
    )
    warnings = "".join(
        f'<p class="warning"><b>{html.escape(item["code"])}</b>: {html.escape(item["detail"])}</p>'
        for item in design["warnings"]
    )
    taps = base64.b64encode(np.asarray(design["fir"], "<f4").tobytes()).decode()
    model = design["model"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Control filter</title><style>{_STYLE}</style>'
        f"<h1>Control filter</h1><p>Method {html.escape(design['method'])}, model {html.escape(model['name'])} "
        f"version {model['version']}, {design['refinement']['applied']} updates.</p>{warnings}"
        f"<table><tr><th></th><th>designed</th><th>Wiener</th></tr>{figures}</table>{drawing}"
        f"{_worn(design)}{_hardware(service, paths, options, design)}"
        f'<p><a download="control_filter.f32" href="data:application/octet-stream;base64,{taps}">2048 taps, '
        "little-endian float32</a></p></html>\n"
    )


def _worn(design: Json) -> str:
    """Compose the figures per measurement, and those of the loop through a feedback path."""
    rows = "".join(
        f"<tr><td>{html.escape(item['label'])}</td><td>{item['mean_noise_reduction_db']:.1f} dB</td>"
        f"<td>{item['left_out_noise_reduction_db']:.1f} dB</td><td>{item['amplification_db']:.2f} dB</td></tr>"
        for item in design["prediction"].get("conditions", ())
    )
    head = "<tr><th></th><th>noise reduction</th><th>if not measured</th><th>amplification</th></tr>"
    found = f"<h2>Measurement by measurement</h2><table>{head}{rows}</table>" if rows else ""
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
    limits = {name: options[name] for name in ("max_gain_db", "model") if name in options}
    rows = "".join(_realised(service, paths | limits, design, target) for target in REALISATIONS)
    head = "<h2>On hardware</h2><table><tr><th>form</th><th>noise reduction</th><th>lost</th></tr>"
    return f"{head}{rows}</table>"


def _realised(service: ServiceClient, paths: Json, design: Json, target: Json) -> str:
    body = paths | {"fir": design["fir"], "sign": design["sign"], "target": target}
    found = service.ask("/export", body).json()
    size = f"{target['n_sections']} sections" if target["form"] == "sos" else f"{target['n_taps']} taps"
    return (
        f"<tr><td>{size}, {target['number_format']}</td>"
        f"<td>{found['prediction']['mean_noise_reduction_db']:.1f} dB</td><td>{found['loss_db']:.1f} dB</td></tr>"
    )
