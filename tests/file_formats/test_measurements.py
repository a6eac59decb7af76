"""What measurement programs write is read; what cannot be used is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.io import savemat

from file_formats.errors import FileError
from file_formats.measurements import read, recording, response

SAMPLES = np.random.default_rng(0).standard_normal(4800)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.aiff"])
def test_stereo_audio_is_outer_then_error(tmp_path: Path, name: str):
    soundfile.write(tmp_path / name, 0.1 * np.stack([SAMPLES, SAMPLES[::-1]], 1), 48_000)
    outer, error, notes = recording(tmp_path / name)
    np.testing.assert_allclose(outer, 0.1 * SAMPLES, atol=1e-4)
    np.testing.assert_allclose(error, 0.1 * SAMPLES[::-1], atol=1e-4)
    assert notes == ()


def test_another_rate_is_resampled_and_said(tmp_path: Path):
    time = np.arange(44_100) / 44_100
    soundfile.write(tmp_path / "a.wav", np.stack([np.sin(2 * np.pi * 1000 * time)] * 2, 1) * 0.5, 44_100)
    outer, _, notes = recording(tmp_path / "a.wav")
    assert len(outer) == 48_000
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(48_000) / 48_000)
    np.testing.assert_allclose(outer[1000:-1000], expected[1000:-1000], atol=2e-3)
    assert "resampled from 44100 to 48000 Hz" in notes[0]


def test_levels_and_phases_become_a_spectrum(tmp_path: Path):
    """A pure delay of 10 samples at -6 dB, as REW exports it, wrapped phase and all."""
    hz = np.geomspace(10, 20_000, 600)
    degrees = np.rad2deg(np.angle(np.exp(-2j * np.pi * hz * 10 / 48_000)))
    rows = [f"{f:.4f} {-6.0206:.4f} {p:.4f}" for f, p in zip(hz, degrees, strict=True)]
    (tmp_path / "a.txt").write_text("* Freq(Hz) SPL(dB) Phase(degrees)\n" + "\n".join(rows))
    found, notes = response(tmp_path / "a.txt")
    samples = found.samples
    assert len(samples) == 8192
    assert np.argmax(samples) == 10
    assert samples[10] == pytest.approx(0.5, rel=0.02)
    assert "interpolated" in notes[0]


def test_columns_of_text(tmp_path: Path):
    (tmp_path / "one.csv").write_text("sample\n" + "\n".join(map(str, SAMPLES)))
    np.testing.assert_allclose(response(tmp_path / "one.csv", rate_hz=48_000)[0].samples, SAMPLES)
    time = np.arange(len(SAMPLES)) / 48_000
    np.savetxt(tmp_path / "two.txt", np.stack([time, SAMPLES], 1), fmt="%.9f")
    found, _ = response(tmp_path / "two.txt")
    np.testing.assert_allclose(found.samples, SAMPLES, atol=1e-8)
    assert (found.rate_hz, found.start_s) == (48_000, 0)


def test_arrays_keep_their_names_and_rate(tmp_path: Path):
    savemat(tmp_path / "a.mat", {"primary": SAMPLES, "secondary": SAMPLES[:100], "fs": 96_000})
    np.savez(tmp_path / "a.npz", primary=SAMPLES, secondary=SAMPLES[:100], sample_rate=96_000)
    for name in ("a.mat", "a.npz"):
        found = read(tmp_path / name)
        assert set(found.channels) == {"primary", "secondary"}
        assert found.rate_hz == 96_000
        with pytest.raises(FileError, match="name one of them feedback"):
            found.channel("feedback")


def test_measured_ears_are_read_by_channel(measured_data: Path):
    file = next((measured_data / "PANDAR_database_1.0").rglob("*person*.ita"))
    found = read(file)
    assert {"PrimaryL", "SecondaryR", "FeedbackL"} <= set(found.channels)
    assert len(found.channel("primaryl")) == 8192


def _wav(samples: Any, rate: int = 48_000) -> Any:
    return lambda file: soundfile.write(file, samples, rate)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.wav", _wav(SAMPLES), "one channel"),
        ("a.wav", _wav(np.zeros((0, 2))), "no samples"),
        ("a.wav", _wav(np.zeros((4800, 2))), "silent"),
        ("a.wav", _wav(0.1 * np.ones((48_000 * 61, 2))), "lasts 61 s"),
        ("a.wav", lambda file: file.write_bytes(b"RIFF????"), "no readable audio"),
        ("a.wav", _wav(np.ones((100, 2)), 2000), "sample rate is 2000"),
        ("a.xyz", lambda file: file.write_bytes(b""), "not known"),
        ("a.csv", lambda file: file.write_text("hello\n"), "no numbers"),
        ("a.npz", lambda file: file.write_bytes(b"PK"), "no readable NumPy"),
        ("a.mat", lambda file: file.write_bytes(b"nothing"), "no readable MATLAB"),
        ("a.txt", lambda file: file.write_text("300 0 9\n20000 0 99\n"), "covers 300"),
        ("a.txt", lambda file: file.write_text("20 0\n9000 1\n20000 2\n"), "without phase"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, name: str, write: Any, message: str):
    write(tmp_path / name)
    with pytest.raises(FileError, match=message):
        recording(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "none.wav")


def test_hours_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    soundfile.write(tmp_path / "a.wav", np.full((61 * 4000, 2), 0.1), 4000)
    monkeypatch.setattr(soundfile, "read", None)
    with pytest.raises(FileError, match="it lasts 61 s; record 4 to 60 s"):
        recording(tmp_path / "a.wav")


def test_a_moment_is_no_recording(tmp_path: Path):
    soundfile.write(tmp_path / "a.wav", 0.1 * np.stack([SAMPLES[:2000]] * 2, 1), 48_000)
    with pytest.raises(FileError, match=r"it lasts 0\.04 s"):
        recording(tmp_path / "a.wav")


def test_which_of_four_channels_are_used_is_said(tmp_path: Path):
    soundfile.write(tmp_path / "a.wav", 0.1 * np.stack([SAMPLES] * 4, 1), 48_000)
    assert "of 4 channels the first" in recording(tmp_path / "a.wav")[2][0]
