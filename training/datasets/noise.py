"""The ten noises: eight recordings, white and pink, all at RMS 0.05, and their mean power spectrum.

Recordings come from a folder of plain WAV files or from DEMAND's layout (``TMETRO/ch01.wav``, ...;
Thiemann, Ito, Vincent 2013). Supervised clips and the reference spectrum use 0-4 s, scores 7-10 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.signal import welch

from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from training.datasets.path_pairs import DatasetError, Float64, fingerprint, read_file

N_RECORDINGS = 8
TARGET_RMS = 0.05
N_SAMPLES = 12 * SAMPLE_RATE_HZ
MIN_SAMPLES = 10 * SAMPLE_RATE_HZ  # scores end at 10 s
REFERENCE_SAMPLES = 4 * SAMPLE_RATE_HZ  # the supervised part of every noise
SCORED_FROM_SAMPLES = 7 * SAMPLE_RATE_HZ
BLOCK_SAMPLES = SAMPLE_RATE_HZ // 2  # scores average six blocks with equal weight
N_BLOCKS = 6
# Level relative to the recording below which a part is silent and not scored.
SILENT_DB = -60.0
PINK_FLAT_BELOW_HZ = 20.0

# Stand-ins for recordings: level in dB at 31.5, 63, ..., 16000 Hz, and the depth of slow level changes in dB.
_KNOTS_HZ = 31.5 * 2.0 ** np.arange(10)
_SIMULATED: dict[str, tuple[tuple[float, ...], float]] = {
    "simulated_aircraft": ((0, 2, 4, 3, 0, -5, -11, -18, -26, -36), 0.5),
    "simulated_car": ((6, 3, -3, -10, -16, -22, -28, -36, -44, -52), 1.5),
    "simulated_cafeteria": ((-22, -14, -8, -2, 0, -4, -10, -16, -24, -34), 3.0),
    "simulated_fan": ((-14, -6, 3, 4, -3, -10, -17, -22, -28, -36), 0.3),
    "simulated_metro": ((8, 6, 0, -8, -7, -6, -13, -22, -32, -42), 3.0),
    "simulated_rain": ((-12, -12, -10, -8, -5, -2, 0, -1, -4, -10), 0.5),
    "simulated_street": ((-2, 0, -2, -5, -8, -9, -13, -20, -29, -40), 2.5),
    "simulated_wind": ((4, 0, -6, -14, -22, -29, -36, -43, -50, -58), 4.0),
}


@dataclass(frozen=True, eq=False)
class NoiseSet:
    """Noises for calibration, training and scoring."""

    # One per signal: recordings first, then ``white`` and ``pink``.
    names: tuple[str, ...]
    # Float64 [n_noises, n_samples] at 48 kHz, 10 to 12 s, RMS 0.05 over the whole file.
    signals: Float64
    # Number of recordings, which come first; only they probe a calibration.
    n_recordings: int
    # Sha256 over the names and bytes of the files read and the seed of white and pink.
    fingerprint: str
    # True where the recordings are synthetic stand-ins.
    is_simulated: bool = False

    def of(self, names: Sequence[str], others: Sequence[str] = ()) -> NoiseSet:
        """Select signals: `names` as recordings, then `others`; DatasetError for an unknown name."""
        chosen = (*names, *others)
        if unknown := sorted(set(chosen).difference(self.names)):
            raise DatasetError(f"noises: none is named {', '.join(unknown)}; use some of {self.names}")
        return NoiseSet(
            names=chosen,
            signals=self.signals[[self.names.index(name) for name in chosen]],
            n_recordings=len(names),
            fingerprint=fingerprint([(self.fingerprint, " ".join((*names, "|", *others)).encode())]),
            is_simulated=self.is_simulated,
        )


def read_noise(folder: str | Path) -> NoiseSet:
    """Read eight recordings and append white and pink noise.

    Parameters
    ----------
    folder
        Holds ``*.wav``, or DEMAND's ``ENVIRONMENT/ch01.wav``, or WAV files one folder down. Of more than eight, eight
        evenly spread over the ascending names are taken: DEMAND's names begin with the kind of place, so that an even
        spread takes every kind.

    Returns
    -------
    NoiseSet
        The first 12 s (10 s at least, as much as all files hold), first channel, each file at RMS 0.05 over its whole
        length.

    Raises
    ------
    DatasetError
        Fewer than eight files, a file that is unreadable, damaged, shorter than 10 s, silent in 0-4 s or in a scored
        block, not at 48 kHz or not 16-, 24-, 32-bit or float.
    """
    recordings, contents = {}, [("seed", b"0")]
    for name, file in _find_files(Path(folder)).items():
        recordings[name], content = _first_channel(file)
        contents.append((name, content))
    return _noise_set(recordings, 0, fingerprint(contents))


def simulated_noise(seed: int = 0) -> NoiseSet:
    """Simulate eight environments (`simulated_...`), white and pink, for a machine without recordings.

    Gaussian noise with an environment's spectrum and a slowly wandering level. Results with these stand-ins must be
    labelled (`is_simulated`).
    """
    recordings = {
        name: environment(np.random.default_rng([seed, 2, n]), *shape)
        for n, (name, shape) in enumerate(_SIMULATED.items())
    }
    table = fingerprint([("seed", str(seed).encode()), ("environments", repr(_SIMULATED).encode())])
    return _noise_set(recordings, seed, table, is_simulated=True)


def white_noise(seed: int) -> Float64:
    """Generate 12 s of white Gaussian noise at 48 kHz, float64 [576000], RMS 0.05."""
    return at_target_rms(np.random.default_rng([seed, 0]).standard_normal(N_SAMPLES))


def pink_noise(seed: int) -> Float64:
    """Generate 12 s of Gaussian noise whose power falls as 1/f, flat below 20 Hz; float64 [576000], RMS 0.05."""
    frequency_hz = np.fft.rfftfreq(N_SAMPLES, 1 / SAMPLE_RATE_HZ)
    magnitude = 1 / np.sqrt(np.maximum(frequency_hz, PINK_FLAT_BELOW_HZ))
    return at_target_rms(_shaped(np.random.default_rng([seed, 1]), magnitude))


def reference_psd(noise_set: NoiseSet) -> Float64:
    """Average the power spectra of the noises on the 32768-point design grid.

    Welch's method per noise (Hann, 32768 samples, half overlap, 0-4 s), then the mean over noises.

    Returns
    -------
    Float64
        One-sided float64 [16385], mean square per bin: the bins sum to the mean square of a noise. Hence every bin but
        DC and Nyquist includes the power of its negative frequency.
    """
    _, density = welch(
        noise_set.signals[:, :REFERENCE_SAMPLES],
        fs=SAMPLE_RATE_HZ,
        window="hann",
        nperseg=DESIGN_N_FFT,
        noverlap=DESIGN_N_FFT // 2,
        detrend=False,  # an offset or slope reaches the filter too
        scaling="density",
        axis=-1,
    )
    return density.mean(axis=0) * (SAMPLE_RATE_HZ / DESIGN_N_FFT)


def _find_files(folder: Path) -> dict[str, Path]:
    """Find eight files by name, ascending."""
    if not folder.is_dir():
        raise DatasetError(f"{folder}: this folder does not exist; give one with noise recordings")
    plain = {file.stem: file for file in _wav_files(folder)}
    below = [file for sub in sorted(folder.iterdir()) if sub.is_dir() for file in _wav_files(sub)]
    demand = {file.parent.name: file for file in below if file.stem.lower() == "ch01"}
    files = plain or demand or {f"{file.parent.name}/{file.stem}": file for file in below}
    if len(files) < N_RECORDINGS:
        raise DatasetError(
            f"{folder}: found {len(files)} noise recordings, expected at least {N_RECORDINGS} "
            "(*.wav, or ENVIRONMENT/ch01.wav as in DEMAND)"
        )
    names = sorted(files)
    chosen = [names[round(i * (len(names) - 1) / (N_RECORDINGS - 1))] for i in range(N_RECORDINGS)]
    return {name: files[name] for name in chosen}


def _wav_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == ".wav" and file.is_file())


def _first_channel(file: Path) -> tuple[Float64, bytes]:
    """Read a WAV file: its first channel [n], of any scale, and its bytes; `read_noise` lists what is refused."""
    found, content = read_file(file)
    if found.rate_hz != SAMPLE_RATE_HZ:
        raise DatasetError(f"{file}: found a sampling rate of {found.rate_hz:g} Hz, expected {SAMPLE_RATE_HZ} Hz")
    signal: Float64 = next(iter(found.channels.values()))
    if signal.size < MIN_SAMPLES:
        raise DatasetError(
            f"{file}: found {signal.size / SAMPLE_RATE_HZ:.2f} s, expected at least "
            f"{MIN_SAMPLES // SAMPLE_RATE_HZ} s"
        )
    # An offset is not sound, hence variances.
    silent = 10 ** (SILENT_DB / 10) * signal.var()
    starts = (SCORED_FROM_SAMPLES + n * BLOCK_SAMPLES for n in range(N_BLOCKS))
    for start, stop in ((0, REFERENCE_SAMPLES), *((item, item + BLOCK_SAMPLES) for item in starts)):
        if signal[start:stop].var() <= silent:
            raise DatasetError(
                f"{file}: found silence from {start / SAMPLE_RATE_HZ:g} to {stop / SAMPLE_RATE_HZ:g} s, expected a "
                f"recording that is less than {-SILENT_DB:g} dB below its mean level there"
            )
    return signal, content


def _noise_set(recordings: dict[str, Float64], seed: int, digest: str, is_simulated: bool = False) -> NoiseSet:
    """Level recordings over their whole length, cut all to a common length, and append white and pink."""
    signals = [*map(at_target_rms, recordings.values()), white_noise(seed), pink_noise(seed)]
    n_samples = min(signal.size for signal in signals)  # white and pink last 12 s, so at most that
    return NoiseSet(
        names=(*recordings, "white", "pink"),
        signals=np.stack([signal[:n_samples] for signal in signals]),
        n_recordings=len(recordings),
        fingerprint=digest,
        is_simulated=is_simulated,
    )


def at_target_rms(signal: Float64) -> Float64:
    """Scale a signal [n] to the mean square of all probes, RMS TARGET_RMS; it must not be silent."""
    return signal * (TARGET_RMS / np.sqrt(np.mean(signal**2)))


def _shaped(generator: np.random.Generator, magnitude: Float64) -> Float64:
    """Generate 12 s of Gaussian noise with a one-sided magnitude [288001]."""
    spectrum = np.fft.rfft(generator.standard_normal(N_SAMPLES)) * magnitude
    return np.fft.irfft(spectrum, N_SAMPLES)


def environment(
    generator: np.random.Generator,
    levels_db: Sequence[float],
    depth_db: float,
    *,
    wander_hz: float = 1.0,
    band_hz: tuple[float, float] = (0.0, np.inf),
) -> Float64:
    """Generate 12 s of Gaussian noise at 48 kHz as in an environment, of any level: float64 [576000].

    Parameters
    ----------
    levels_db
        Levels at 31.5, 63, ..., 16000 Hz, ten in all.
    depth_db
        SD of the level's changes.
    wander_hz
        Highest rate of these changes.
    band_hz
        Range outside of which there is no power.
    """
    frequency_hz = np.fft.rfftfreq(N_SAMPLES, 1 / SAMPLE_RATE_HZ)
    level_db = np.interp(np.log(np.maximum(frequency_hz, 1)), np.log(_KNOTS_HZ), levels_db)
    inside = (band_hz[0] <= frequency_hz) & (frequency_hz <= band_hz[1])
    carrier = _shaped(generator, inside * 10 ** (level_db / 20))
    wander = _shaped(generator, ((frequency_hz > 0) & (frequency_hz < wander_hz)).astype(np.float64))
    return carrier * 10 ** (depth_db * wander / wander.std() / 20)
