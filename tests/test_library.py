"""The library's functions on files and arrays."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import prime_anc
from prime_anc.client import InvalidRequest, Unavailable
from prime_anc.library import local
from prime_anc.measure.files.errors import FileError
from tests.service.recordings import off_and_on


def test_import_loads_nothing_slow() -> None:
    code = "import sys, prime_anc; assert not {'torch', 'fastapi', 'scipy', 'pydantic'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_and_arrays_agree(folder: Path) -> None:
    files = [folder / name for name in ("off.wav", "on.wav")]
    ear = prime_anc.calibrate(*files, gain=0.35)
    off, on = (soundfile.read(file)[0] for file in files)
    of_lists = prime_anc.calibrate(off.T.tolist(), on, gain=0.35)
    np.testing.assert_array_equal(of_lists.primary.impulse_response, ear.primary.impulse_response)
    filt = prime_anc.design(folder / "ear.json", k=1)
    np.testing.assert_array_equal(prime_anc.design(ear, k=1).taps, filt.taps)
    primary, secondary = (path.impulse_response for path in (ear.primary, ear.secondary))
    predicted = prime_anc.predict(filt.taps.tolist(), primary.tolist(), secondary.tolist())
    assert predicted.prediction.mean_noise_reduction_db > 10
    takes = off_and_on(primary, np.convolve(secondary, filt.taps), 96_000)
    answer = prime_anc.verify(filt, ear, *(np.stack([take["x"], take["e"]]) for take in takes))
    assert [entry.code for entry in answer.diagnosis] == ["as_predicted"]


def test_saved_answers_are_read(folder: Path, tmp_path: Path) -> None:
    ear = prime_anc.read(folder / "ear.json")
    filt = prime_anc.design(ear, k=1)
    filt.save(tmp_path / "filter.json")
    chip = prime_anc.export(tmp_path / "filter.json", ear, tmp_path / "chip.h", tmp_path / "chip.json", sections=4)
    assert "control_filter" in (tmp_path / "chip.h").read_text()
    again = prime_anc.predict(tmp_path / "chip.json", ear)
    assert again.prediction.mean_noise_reduction_db == pytest.approx(
        chip.prediction.mean_noise_reduction_db, abs=1e-3
    )
    np.testing.assert_array_equal(prime_anc.read(tmp_path / "filter.json").taps, filt.taps)
    both = prime_anc.hybrid(ear, k=0, controller={"n_sections": 4})
    both.save(tmp_path / "both.json")
    assert prime_anc.read(tmp_path / "both.json").controller.sos == both.controller.sos


def test_unusable_arguments_are_explained(folder: Path) -> None:
    with pytest.raises(ValueError, match="gain: give the factor"):
        prime_anc.calibrate(folder / "off.wav", folder / "on.wav")
    with pytest.raises(ValueError, match=r"shape \[9\]: give \[2, n\], x then e"):
        prime_anc.calibrate(np.zeros(9), np.zeros(9), gain=1)
    with pytest.raises(ValueError, match="gain: give the factor"):
        prime_anc.calibrate(folder / "off.wav", folder / "on.wav", gain="loud")
    with pytest.raises(TypeError, match="there is no such argument; max_gain_db is"):
        prime_anc.design(folder / "ear.json", max_gain=3)
    with pytest.raises(FileError, match="no measurement of an ear"):
        prime_anc.design(prime_anc.design(folder / "ear.json", k=0))
    with pytest.raises(ValueError, match="a calibration includes them"):
        prime_anc.design(folder / "ear.json", np.ones(4))
    with pytest.raises(InvalidRequest, match="max_gain_db: nan"):
        prime_anc.design(folder / "ear.json", max_gain_db=float("nan"))
    with pytest.raises(FileError, match="xyz is not known"):
        prime_anc.export(folder / "filter.json", folder / "ear.json", folder / "a.h", folder / "b.xyz")
    assert not (folder / "a.h").exists()


def test_export_keeps_ceiling_of_design(folder: Path) -> None:
    """A design holds the curve under which its export is designed anew."""
    curve, ear = {"frequency_hz": [99.0, 101.0], "gain_db": [0.0, 30.0]}, folder / "ear.json"
    exported = prime_anc.export(prime_anc.design(ear, max_gain_db=curve), ear, taps=1024)
    response = np.fft.rfft(exported.coefficients.taps, 48_000)
    assert np.abs(response[20:99]).max() < 10 ** (0.1 / 20)


def test_late_answer_is_unavailable(folder: Path) -> None:
    with pytest.raises(Unavailable, match="allow more time"):
        local().hybrid(prime_anc.read(folder / "ear.json"), deadline_ms=1.0)


def test_failed_calibration_warns(folder: Path) -> None:
    off, on = (soundfile.read(folder / name)[0] for name in ("off.wav", "on.wav"))
    noise = np.random.default_rng(0).standard_normal((2, *off.shape)) * [0, 3 * off.std()]
    ear = prime_anc.calibrate(off + noise[0], on + noise[1], gain=0.35)
    with pytest.warns(UserWarning, match="this calibration did not pass: "):
        prime_anc.design(ear, k=0)


def test_changed_recordings_warn(folder: Path, tmp_path: Path) -> None:
    """What reading changes is said, as the command says it."""
    for name in ("off.wav", "on.wav"):
        soundfile.write(tmp_path / name, soundfile.read(folder / name)[0], 44_100, subtype="FLOAT")
    with pytest.warns(UserWarning, match="44100"):
        prime_anc.calibrate(tmp_path / "off.wav", tmp_path / "on.wav", gain=0.35)
