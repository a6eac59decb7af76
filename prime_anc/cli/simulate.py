"""`prime-anc example` and `prime-anc simulate`: recordings without an earphone at hand."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from prime_anc.cli import tables
from prime_anc.cli.flags import FILE, output_flag
from prime_anc.inputs import ears, filters
from prime_anc.measure.files import measurements
from prime_anc.measure.posterior import SECONDARY_TAPS
from prime_anc.method.conventions import SAMPLE_RATE_HZ

Json = dict[str, Any]
Real = NDArray[np.floating]

# RMS of the sound at the outer microphone, of full scale: loud, and 26 dB below clipping.
SOUND_RMS = 0.05
EXAMPLE_GAIN = 0.35
# Loudspeaker to outer microphone of the example listener: as to the error microphone, later and 40 dB quieter.
FEEDBACK_LEVEL, FEEDBACK_DELAY = 0.01, 4
SECONDS = click.FloatRange(1, 60)


def seconds_option(default: float) -> Any:
    """Make the flag for the length of recordings."""
    return click.option(
        "--seconds", type=SECONDS, default=default, show_default=True, help="Length of a recording."
    )


snr_option = click.option(
    "--snr-db",
    type=click.FloatRange(0, 120),
    default=50.0,
    show_default=True,
    help="Sound at either microphone over the microphone's noise, which is white.",
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Of the sound and the noise.")


@click.command()
@output_flag(
    "Folder for the recordings.",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default=True,
)
@seconds_option(8.0)
@snr_option
@seed_option
def example(output: Path, seconds: float, snr_db: float, seed: int) -> None:
    """Write recordings of the example listener, to start without an earphone.

    They are simulated: white noise through the true paths of a listener drawn from a model's prior. off.wav:
    loudspeaker silent. on.wav: gain 0.35, the same noise, so that what outlasts the windows can be measured.
    drive.wav: loudspeaker alone. listener.npz: the true paths, which only `prime-anc simulate` may know.
    """
    with np.load(str(files("prime_anc.cli") / "example_ear.npz")) as ear:
        primary, secondary = ear["primary"].astype(float), ear["secondary"].astype(float)
    feedback = FEEDBACK_LEVEL * np.concatenate((np.zeros(FEEDBACK_DELAY), secondary[:-FEEDBACK_DELAY]))
    random = np.random.default_rng(seed)
    n = round(seconds * SAMPLE_RATE_HZ)
    output.mkdir(parents=True, exist_ok=True)
    sound = SOUND_RMS * random.standard_normal(n)
    for name, gain in (("off.wav", 0.0), ("on.wav", EXAMPLE_GAIN)):
        outer = _through(sound, 1, gain * feedback)
        error = _through(sound, primary) - gain * _through(outer, secondary)
        _write(output / name, [outer, error], snr_db, random)
    played = SOUND_RMS * random.standard_normal(n)
    drive = [_through(played, feedback), _through(played, secondary)]
    _write(output / "drive.wav", drive, snr_db, random, first=[played])
    true = output / "listener.npz"
    np.savez(true, primary=primary, secondary=secondary, feedback=feedback, sample_rate=SAMPLE_RATE_HZ)
    tables.notes([f"written: {true}"], "")
    off, on, ear_file = (output / name for name in ("off.wav", "on.wav", "ear.json"))
    click.echo(f"next: prime-anc calibrate {off} {on} --gain {EXAMPLE_GAIN} -o {ear_file}")


def _through(signal: Real, response: Any, loop: Real | None = None) -> Real:
    """Filter a signal by response / (1 + loop), whose poles have decayed at the end."""
    n_fft = 1 << (len(signal) + 2**15).bit_length()
    spectrum = np.fft.rfft(signal, n_fft) * (np.fft.rfft(response, n_fft) if np.ndim(response) else response)
    if loop is not None:
        spectrum /= 1 + np.fft.rfft(loop, n_fft)
    return np.asarray(np.fft.irfft(spectrum, n_fft)[: len(signal)])


def _write(
    file: Path, channels: list[Real], snr_db: float, random: np.random.Generator, first: list[Real] | None = None
) -> None:
    """Write channels with noise as WAV, after those without."""
    import soundfile

    noisy = [
        channel + 10 ** (-snr_db / 20) * channel.std() * random.standard_normal(len(channel))
        for channel in channels
    ]
    soundfile.write(file, np.stack([*(first or []), *noisy], 1), SAMPLE_RATE_HZ, subtype="FLOAT")
    tables.notes([f"written: {file}"], "")


@click.command()
@click.argument("ear", type=FILE)
@click.argument("control_filter", type=FILE)
@click.option(
    "-o",
    "--output",
    "outputs",
    type=FILE,
    multiple=True,
    help="File for the recording with the filter off, then for that with it on.",
)
@click.option(
    "--sound", type=FILE, help="Recording whose first channel is the outside sound; default: white noise."
)
@click.option("--rounded-feedback", is_flag=True, help="Sections feed back outputs rounded to the data word.")
@click.option("--gain-db", type=float, default=0.0, help="Loudspeaker louder than it was measured, to see a fault.")
@seconds_option(4.0)
@snr_option
@seed_option
def simulate(
    ear: Path,
    control_filter: Path,
    outputs: tuple[Path, ...],
    sound: Path | None,
    rounded_feedback: bool,
    gain_db: float,
    seconds: float,
    snr_db: float,
    seed: int,
) -> None:
    """Record a filter as if it ran: off, and on.

    EAR is a measurement, or the example's listener.npz; CONTROL_FILTER is what `prime-anc export` wrote as .json, or a
    design. The filter runs sample by sample in the chip's number format and rate, with its saturation and round-off;
    rate conversion costs no time. `prime-anc verify` takes the two recordings.
    """
    if len(outputs) != 2:
        raise click.UsageError("give two files: -o quiet.wav -o running.wav")
    paths = tables.noted(ears.ear(ear))
    document = filters.running_filter(control_filter)
    random = np.random.default_rng(seed)
    n = round(seconds * SAMPLE_RATE_HZ)
    outside = [
        measurements.first_channel(sound)[0] if sound else SOUND_RMS * random.standard_normal(n) for _ in outputs
    ]
    gain = 10 ** (gain_db / 20)
    takes = [
        recorded(paths, running, item, is_wide=not rounded_feedback, gain=gain)
        for running, item in zip((None, document), outside, strict=True)
    ]
    for file, (channels, clipped) in zip(outputs, takes, strict=True):
        _write(file, channels, snr_db, random)
        if clipped > 1e-4:
            tables.notes([f"the filter's output clips in {100 * clipped:.2g} % of samples; lower the ceiling"])


def recorded(
    paths: Json, document: Json | None, outside: Real, *, is_wide: bool = True, gain: float = 1.0
) -> tuple[list[Real], float]:
    """Simulate a recording of both microphones.

    Parameters
    ----------
    paths
        Fields of a measurement.
    document
        Filter, and controller if it has one, that run; None: they are off.
    outside
        Outside sound at the outer microphone, real [n], 48 kHz.
    is_wide, gain
        Of the sections' feedback, and of the loudspeaker.

    Returns
    -------
    tuple[list[Real], float]
        x and e, real [n] each, and the share of output samples at full scale.
    """
    from prime_anc.hardware.running import Machine, run_in_loop
    from prime_anc.method.errors import InvalidOption

    primary, secondary = (ears.response_of(paths[name]) for name in ("primary", "secondary"))
    # Of the outer and the error microphone, to which filter and controller listen.
    signals = [outside, _through(outside, primary)]
    if document is None:
        return signals, 0.0
    level = gain if document.get("sign", "minus") == "minus" else -gain
    routes = [level * ears.response_of(paths["feedback"]) if paths.get("feedback") else None, level * secondary]
    coefficients, delays_s = [document["coefficients"]], [document.get("latency_samples", 0.0) / SAMPLE_RATE_HZ]
    if controller := document.get("controller"):
        coefficients.append(controller | {"form": "sos"})
        delays_s.append(1e-6 * controller["latency_us"])
    try:
        machines = [Machine(item, is_wide=is_wide) for item in coefficients]
    except InvalidOption as error:
        raise click.UsageError(str(error)) from error
    each = range(len(machines))
    groups = [[n] for n in each]
    if routes[0] is not None:  # the filter's microphone picks up the controller too
        groups = [list(each)]
        if len({machine.sample_rate_hz for machine in machines}) > 1:
            raise click.UsageError("with a feedback path, export the filter at the controller's rate (--rate)")
    clipped = 0.0
    for group in groups:
        rate = machines[group[0]].sample_rate_hz
        loop = [[_loop_path(routes[i], rate, delays_s[j]) for j in group] for i in group]
        outputs = run_in_loop([machines[n] for n in group], [_at_rate(signals[n], rate) for n in group], loop)
        for n, output in zip(group, outputs, strict=True):
            if coefficients[n].get("scaling"):
                clipped = max(clipped, float(np.mean(np.abs(output) >= 0.9999)))
            played = _late(_at_rate(output, SAMPLE_RATE_HZ, rate)[: len(outside)], SAMPLE_RATE_HZ * delays_s[n])
            for i, route in enumerate(routes):
                if route is not None:
                    signals[i] = signals[i] - _through(played, route)
    return signals, clipped


def _loop_path(response: Real | None, rate_hz: float, delay_s: float) -> Real | None:
    """Sample a path within a loop at another rate, cut to SECONDARY_TAPS samples of 48 kHz."""
    if response is None:
        return None
    padded = np.zeros(2 * SECONDARY_TAPS)
    padded[: min(len(response), SECONDARY_TAPS)] = response[:SECONDARY_TAPS]
    late = _at_rate(_late(padded, SAMPLE_RATE_HZ * delay_s), rate_hz) * (SAMPLE_RATE_HZ / rate_hz)
    return late[: len(late) // 2]


def _late(signal: Real, delay_samples: float) -> Real:
    """Delay a signal, as if it were periodic."""
    if not delay_samples:
        return signal
    turns = np.arange(len(signal) // 2 + 1) * (delay_samples / len(signal))
    return np.asarray(np.fft.irfft(np.fft.rfft(signal) * np.exp(-2j * np.pi * turns), len(signal)))


def _at_rate(signal: Real, rate_hz: float, given_hz: float = SAMPLE_RATE_HZ) -> Real:
    """Convert a signal to another rate without delay, as if it were periodic."""
    if rate_hz == given_hz:
        return signal
    from scipy.signal import resample

    return np.asarray(resample(signal, round(len(signal) * rate_hz / given_hz)))
