"""One HTML page about one design, with its plots inside: nothing to fetch, easy to print."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli.service import Failed, Service
from cli.tables import unrepeated

Json = dict[str, Any]

LATENCIES = (0, 1, 2, 4, 8, 16)
N_FFT = 32_768
_HZ = np.fft.rfftfreq(N_FFT, 1 / 48_000)
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
td:first-child, th:first-child { text-align: left } svg { width: 100%; height: auto } .warning { color: #8a3b00 }
"""


def compose(service: Service, paths: Json, options: Json, k: int) -> str:
    """The page. Raises Failed where matplotlib is not installed or the service refuses."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Failed("the report needs matplotlib: pip install matplotlib") from error
    leave_one_out = "true" if len(paths.get("conditions", ())) > 1 else None
    own = service.ask("/refine", paths | options, k=k, leave_one_out=leave_one_out).json()
    rival = service.ask("/refine", paths | options | {"method": "wmmse"}, k=0).json()
    loops = _loop_gains(paths, own["fir"])
    figure = Figure(figsize=(9, 10 + 3 * bool(loops)), layout="constrained")
    reduction, gain, latency, *loop = figure.subplots(3 + bool(loops), 1)
    hz = own["prediction"]["band_centre_hz"]
    for name, each in (("designed", own), ("Wiener (wmmse)", rival)):
        reduction.step(hz, each["prediction"]["noise_reduction_db"], where="mid", label=name, lw=2)
        gain.plot(_HZ[1:], _decibels(np.fft.rfft(each["fir"], N_FFT))[1:], label=name)
    for each in own["prediction"].get("conditions", ()):
        reduction.step(hz, each["noise_reduction_db"], where="mid", label=f"designed, {each['label']}", lw=0.8)
    reduction.set(xscale="log", ylabel="noise reduction, dB", title="Predicted noise reduction per band")
    gain.set(xscale="log", xlim=(10, 20_000), ylabel="|W|, dB", title="Control filter")
    curve = [
        service.ask("/refine", paths | options | {"latency_samples": float(each)}, k=k).json()["prediction"]
        for each in LATENCIES
    ]
    latency.plot(LATENCIES, [each["mean_noise_reduction_db"] for each in curve], "o-", label="mean noise reduction")
    louder = [max(0.0, -min(each["noise_reduction_db"])) for each in curve]
    latency.plot(LATENCIES, louder, "s--", label="loudest band, by how much it is louder")
    latency.set(xlabel="latency of the signal chain, samples at 48 kHz", ylabel="dB", title="What latency costs")
    for axes in loop:
        for name, each in loops.items():
            axes.plot(_HZ[1:], each[1:], label=name)
        axes.axhline(0, color="0.3", lw=0.8)
        axes.set(
            xscale="log",
            xlim=(10, 20_000),
            ylim=(-80, 20),
            ylabel="|W F|, dB",
            title="Loop through the feedback path",
        )
    for axes in (reduction, gain, *loop):
        axes.set_xlabel("Hz")
    for axes in (reduction, gain, latency, *loop):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    drawing = stream.getvalue()
    return _page(service, paths, own, rival, drawing[drawing.index("<svg") :])


def _page(service: Service, paths: Json, own: Json, rival: Json, drawing: str) -> str:
    prediction = own["prediction"]
    rows = [
        ("mean noise reduction, 50 Hz to 5 kHz", "mean_noise_reduction_db", "dB"),
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
        f'<p class="warning"><b>{html.escape(each["code"])}</b>: {html.escape(each["detail"])}</p>'
        for each in unrepeated(own["warnings"])
    )
    taps = base64.b64encode(np.asarray(own["fir"], "<f4").tobytes()).decode()
    model = own["model"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Control filter</title><style>{_STYLE}</style>'
        f"<h1>Control filter</h1><p>Method {html.escape(own['method'])}, model {html.escape(model['name'])} "
        f"version {model['version']}, {own['refinement']['applied']} updates.</p>{warnings}"
        f"<table><tr><th></th><th>designed</th><th>Wiener</th></tr>{figures}</table>{drawing}"
        f"{_worn(own)}{_hardware(service, paths, own)}"
        f'<p><a download="control_filter.f32" href="data:application/octet-stream;base64,{taps}">2048 taps, '
        "little-endian float32</a></p></html>\n"
    )


def _worn(own: Json) -> str:
    """Of several measurements each one's figures, and those of the loop through a feedback path."""
    rows = "".join(
        f"<tr><td>{html.escape(each['label'])}</td><td>{each['mean_noise_reduction_db']:.1f} dB</td>"
        f"<td>{each['left_out_noise_reduction_db']:.1f} dB</td><td>{each['amplification_db']:.2f} dB</td></tr>"
        for each in own["prediction"].get("conditions", ())
    )
    head = "<tr><th></th><th>noise reduction</th><th>if not measured</th><th>amplification</th></tr>"
    found = f"<h2>Measurement by measurement</h2><table>{head}{rows}</table>" if rows else ""
    if loop := own.get("loop"):
        found += (
            f"<h2>Loop</h2><p>{'Stable' if loop['stable'] else 'Unstable'}: gain margin "
            f"{loop['gain_margin_db']:.1f} dB, phase margin {loop['phase_margin_deg']:.0f} degrees, "
            f"peak {loop['peak_db']:.1f} dB at {loop['peak_hz']:.0f} Hz.</p>"
        )
    return found


def _loop_gains(paths: Json, fir: Sequence[float]) -> dict[str, NDArray[np.float64]]:
    """|W F| in dB of each measurement that has a feedback path, by label."""
    response = np.fft.rfft(fir, N_FFT)
    return {
        each.get("label", "designed"): _decibels(response * _spectrum(each["feedback"]))
        for each in paths.get("conditions", [paths])
        if each.get("feedback") is not None
    }


def _spectrum(path: Json) -> NDArray[np.complex128]:
    """Of a path as a request holds it, on N_FFT points."""
    if "impulse_response" in path:
        return np.fft.rfft(path["impulse_response"], N_FFT)
    if "complex64" in path:
        own = np.frombuffer(base64.b64decode(path["complex64"]), "<c8")
    else:
        own = np.array(path["real"]) + 1j * np.array(path["imag"])
    return np.fft.rfft(np.fft.irfft(own)[:N_FFT], N_FFT)


def _decibels(spectrum: NDArray[np.complexfloating]) -> NDArray[np.float64]:
    return 20 * np.log10(np.maximum(np.abs(spectrum), 1e-9))


def _hardware(service: Service, paths: Json, own: Json) -> str:
    rows = "".join(_realised(service, paths, own, target) for target in REALISATIONS)
    head = "<h2>On hardware</h2><table><tr><th>form</th><th>noise reduction</th><th>lost</th></tr>"
    return f"{head}{rows}</table>"


def _realised(service: Service, paths: Json, own: Json, target: Json) -> str:
    body = paths | {"fir": own["fir"], "sign": own["sign"], "target": target}
    found = service.ask("/export", body).json()
    size = f"{target['n_sections']} sections" if target["form"] == "sos" else f"{target['n_taps']} taps"
    return (
        f"<tr><td>{size}, {target['number_format']}</td>"
        f"<td>{found['prediction']['mean_noise_reduction_db']:.1f} dB</td><td>{found['loss_db']:.1f} dB</td></tr>"
    )
