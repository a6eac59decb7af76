"""Six measured ears of PANDAR in the database's layout, with synthetic noises.

    python -m tests.data.six_ears DATABASE

writes `six_ears.npz` from a full copy.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat, savemat, wavfile

FILE = Path(__file__).with_name("six_ears.npz")
CHANNELS = ("SecondaryL", "SecondaryR", "FeedbackL", "FeedbackR", "PrimaryL", "PrimaryR")
PERSONS_FOLDER = "PANDAR_database_1.0/BoseQC20/acoustic_booth/persons"

# The first person, the one with the lowest noise reduction of six sections, and one with a loose earphone; both ears.
PERSONS = (1, 13, 23)

# Spectral slopes of the noises: power is 1 / f to these, above 20 Hz.
SLOPES = (0.0, 0.4, 0.8, 1.0, 1.2, 1.5, 1.8, 2.0)
N_NOISE_SAMPLES = 12 * 48_000


def write_six_ears(folder: Path) -> None:
    """Write the persons' files and the noises as a database that readers take."""
    with np.load(FILE) as stored:
        for number in PERSONS:
            name = f"{number:03d}"
            write_person(
                person_file(folder / PERSONS_FOLDER, number),
                dict(zip("LR", stored[f"{name}_fit"].tolist(), strict=True)),
                data=stored[name].astype(np.float64),
            )
    (folder / "noise").mkdir()
    for slope in SLOPES:
        signal = coloured_noise(slope)
        samples = np.round(0.7 * 32767 * signal / np.abs(signal).max()).astype(np.int16)
        wavfile.write(folder / "noise" / f"slope_{slope:g}.wav", 48_000, samples)


def coloured_noise(slope: float) -> np.ndarray:
    """Draw Gaussian noise whose power falls as f to the -slope above 20 Hz, [N_NOISE_SAMPLES]."""
    spectrum = np.fft.rfft(np.random.default_rng(int(10 * slope)).standard_normal(N_NOISE_SAMPLES))
    frequency_hz = np.maximum(np.fft.rfftfreq(N_NOISE_SAMPLES, 1 / 48_000), 20.0)
    noise: np.ndarray = np.fft.irfft(spectrum * frequency_hz ** (-slope / 2))
    return noise


def person_file(folder: Path, number: int) -> Path:
    """Name a person's file as the database does."""
    return folder / f"PANDAR_TF_{number:03d}_person_BoseQC20.ita"


def write_person(file: Path, fit: dict[str, str], **fields: Any) -> None:
    """Write a person's file in the database's layout.

    Parameters
    ----------
    file
        A name of `person_file`.
    fit
        How well the earphone fits, for `L` and `R`. As in the database, primary rows carry the right ear's.
    fields
        Of the file's structure: `data`, impulse responses in the order of CHANNELS, [8192, 6], and what is not as
        usual.
    """
    number = int(file.name.split("_")[2])
    rows = np.empty(len(CHANNELS), dtype=object)
    for row, channel in enumerate(CHANNELS):
        side = "R" if channel.startswith("Primary") else channel[-1]
        rows[row] = np.array([f"Person ID {number}", channel, "person", fit[side]], dtype=object)
    audio = {
        "channelNames": np.array(CHANNELS, dtype=object),
        "samplingRate": 48000.0,
        "comment": f"Person ID {number}",
        "channelUserData": rows,
    } | fields
    file.parent.mkdir(parents=True, exist_ok=True)
    savemat(str(file), {"ITA_TOOLBOX_AUDIO_OBJECT": audio}, appendmat=False)


def main(database: Path) -> None:
    """Store the six ears of a full copy as float32."""
    arrays: dict[str, np.ndarray] = {}
    for number in PERSONS:
        (file,) = database.rglob(person_file(Path(), number).name)
        audio = loadmat(file, squeeze_me=True, struct_as_record=False)["ITA_TOOLBOX_AUDIO_OBJECT"]
        assert tuple(audio.channelNames) == CHANNELS
        arrays[f"{number:03d}"] = audio.data.astype(np.float32)
        arrays[f"{number:03d}_fit"] = np.array([str(row[-1]) for row in audio.channelUserData[:2]])
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
