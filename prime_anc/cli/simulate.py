"""`prime-anc example` and `prime-anc simulate`: recordings without an earphone at hand."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from prime_anc.cli import tables
from prime_anc.cli.flags import FILE, Flag, output_flag, with_flags
from prime_anc.hardware.recording import recorded
from prime_anc.inputs import ears, filters
from prime_anc.measure.estimate import convolved
from prime_anc.measure.files import measurements
from prime_anc.method.conventions import SAMPLE_RATE_HZ

Real = NDArray[np.floating]

# RMS of the sound at the outer microphone, of full scale: loud, and 26 dB below clipping.
SOUND_RMS = 0.05
EXAMPLE_GAIN = 0.35
# Loudspeaker to outer microphone of the example listener: as to the error microphone, later and 40 dB quieter.
FEEDBACK_LEVEL, FEEDBACK_DELAY = 0.01, 4
# Share of samples at full scale beyond which a filter is said to clip.
MAX_CLIPPED_SHARE = 1e-4
SECONDS = click.FloatRange(1, 60)


def recording_flags(seconds: float) -> Flag:
    """Make the flags for the length and the noise of recordings."""
    flags = (
        click.option("--seconds", type=SECONDS, default=seconds, help="Length of a recording."),
        click.option(
            "--snr-db",
            type=click.FloatRange(0, 120),
            default=50.0,
            help="Sound at either microphone over the microphone's noise, which is white.",
        ),
        click.option("--seed", type=int, default=0, help="Of the sound and the noise."),
    )
    return with_flags(flags)


@click.command()
@output_flag(
    "Folder for the recordings.",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
)
@recording_flags(8.0)
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
    output.mkdir(parents=True, exist_ok=True)
    sound = _noise(seconds, random)
    n_fft = 2 * len(sound)  # the loop's response has decayed long before
    for name, gain in (("off.wav", 0.0), ("on.wav", EXAMPLE_GAIN)):
        loop = 1 + gain * np.fft.rfft(feedback, n_fft)
        outer = np.fft.irfft(np.fft.rfft(sound, n_fft) / loop)[: len(sound)]
        error = convolved(sound, primary) - gain * convolved(outer, secondary)
        _write(output / name, [outer, error], snr_db, random)
    played = _noise(seconds, random)
    drive = [convolved(played, path) for path in (feedback, secondary)]
    _write(output / "drive.wav", drive, snr_db, random, first=[played])
    true = output / "listener.npz"
    np.savez(true, primary=primary, secondary=secondary, feedback=feedback, sample_rate=SAMPLE_RATE_HZ)
    tables.notes([f"written: {true}"], "")
    off, on, ear_file = (output / name for name in ("off.wav", "on.wav", "ear.json"))
    click.echo(f"next: prime-anc calibrate {off} {on} --gain {EXAMPLE_GAIN} -o {ear_file}")


def _noise(seconds: float, random: np.random.Generator) -> Real:
    return SOUND_RMS * random.standard_normal(round(seconds * SAMPLE_RATE_HZ))


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
@recording_flags(4.0)
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
    fields = tables.noted(ears.ear(ear))
    names = [name for name in ("primary", "secondary", "feedback") if name in fields]
    paths = {name: ears.response_of(fields[name]) for name in names}
    document = filters.running_filter(control_filter)
    random = np.random.default_rng(seed)
    outside = [measurements.first_channel(sound)[0] if sound else _noise(seconds, random) for _ in outputs]
    gain, is_wide = 10 ** (gain_db / 20), not rounded_feedback
    pairs = zip(outside, (None, document), strict=True)
    takes = [recorded(item, **paths, running=running, is_wide=is_wide, gain=gain) for item, running in pairs]
    for file, (channels, clipped) in zip(outputs, takes, strict=True):
        _write(file, channels, snr_db, random)
        if clipped > MAX_CLIPPED_SHARE:
            tables.notes([f"the filter's output clips in {100 * clipped:.2g} % of samples; lower the ceiling"])
