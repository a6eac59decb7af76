"""Files of measurement programs are read; unusable ones are named."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.io import savemat

from measurement.files.errors import FileError
from measurement.files.measurements import read, recording, response
from service.calibration.wav import read_wav
from service.errors import HttpProblem

SAMPLES = np.random.default_rng(0).standard_normal(4800)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.aiff"])
def test_stereo_audio_is_outer_then_error(tmp_path: Path, name: str):
    soundfile.write(tmp_path / name, 0.1 * np.stack([SAMPLES, SAMPLES[::-1]], 1), 48_000)
    found = recording(tmp_path / name)
    outer, error = found.signals
    np.testing.assert_allclose(outer, 0.1 * SAMPLES, atol=1e-4)
    np.testing.assert_allclose(error, 0.1 * SAMPLES[::-1], atol=1e-4)
    assert found.clipped_shares == [0, 0]


def test_other_rate_is_resampled_with_note(tmp_path: Path):
    time = np.arange(44_100) / 44_100
    soundfile.write(tmp_path / "a.wav", np.stack([np.sin(2 * np.pi * 1000 * time)] * 2, 1) * 0.5, 44_100)
    found = recording(tmp_path / "a.wav")
    outer, notes = found.signals[0], found.notes
    assert len(outer) == 48_000
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(48_000) / 48_000)
    np.testing.assert_allclose(outer[1000:-1000], expected[1000:-1000], atol=2e-3)
    assert "resampled from 44100 to 48000 Hz" in notes[0]


def test_levels_and_phases_become_spectrum(tmp_path: Path):
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


def test_arrays_keep_names_and_rate(tmp_path: Path):
    savemat(tmp_path / "a.mat", {"primary": SAMPLES, "secondary": SAMPLES[:100], "fs": 96_000})
    np.savez(tmp_path / "a.npz", primary=SAMPLES, secondary=SAMPLES[:100], sample_rate=96_000)
    for name in ("a.mat", "a.npz"):
        found = read(tmp_path / name)
        assert set(found.channels) == {"primary", "secondary"}
        assert found.rate_hz == 96_000
        with pytest.raises(FileError, match="name one of them feedback"):
            found.channel("feedback")


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
def test_unusable_file_is_named(tmp_path: Path, name: str, write: Any, message: str):
    write(tmp_path / name)
    with pytest.raises(FileError, match=message):
        recording(tmp_path / name)


@pytest.mark.parametrize("rate", [44_100, 96_000])
def test_clipping_is_counted_before_resampling(tmp_path: Path, rate: int):
    """Flat tops below full scale too, as after a change of volume."""
    samples = np.random.default_rng(1).standard_normal(2 * rate)
    clipped = 0.3 * np.clip(samples, -1.5, 1.5)
    soundfile.write(tmp_path / "a.wav", np.stack([0.1 * samples, clipped], 1), rate)
    assert recording(tmp_path / "a.wav").clipped_shares == pytest.approx([0, 0.134], abs=0.01)


def _whole_wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, 0.1 * np.stack([SAMPLES] * 2, 1), 48_000, format="WAV", subtype="PCM_16")
    return file.getvalue()


WHOLE = _whole_wav()
N_SAMPLES_BYTES = 4 * len(SAMPLES)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (WHOLE[: len(WHOLE) // 3], f"promises {N_SAMPLES_BYTES} bytes of samples, the file holds"),
        (WHOLE[:-1], f"promises {N_SAMPLES_BYTES} bytes of samples, the file holds {N_SAMPLES_BYTES - 1}"),
        (WHOLE[:40], "and no samples"),
        (WHOLE[:4] + b"\xff\xff\0\0" + WHOLE[8:], "promises 65543 bytes, the file holds"),
        (WHOLE[:40] + (N_SAMPLES_BYTES - 2).to_bytes(4, "little") + WHOLE[44:-2], "ends within a sample"),
        (WHOLE[:40] + bytes(4) + WHOLE[44:], "did not finish"),
    ],
    ids=["third", "byte", "head", "riff", "odd", "unfinished"],
)
def test_cut_wav_is_rejected(tmp_path: Path, cut: bytes, message: str):
    (tmp_path / "a.wav").write_bytes(cut)
    with pytest.raises(FileError, match=message):
        recording(tmp_path / "a.wav")
    with pytest.raises(HttpProblem, match="cut off"):
        read_wav(cut, "takes.0.x.wav")


@pytest.mark.parametrize("name", ["a.aiff", "a.w64", "a.caf", "a.rf64", "big.wav", "long.wav"])
def test_cut_container_is_rejected(tmp_path: Path, name: str):
    form = {"big.wav": {"endian": "BIG"}, "long.wav": {"format": "RF64"}}.get(name, {})
    soundfile.write(tmp_path / name, 0.1 * SAMPLES, 48_000, subtype="PCM_24", **form)
    whole = (tmp_path / name).read_bytes()
    np.testing.assert_allclose(response(tmp_path / name)[0].samples, 0.1 * SAMPLES, atol=1e-6)
    (tmp_path / name).write_bytes(whole[:-3000])
    with pytest.raises(FileError, match="cut off"):
        response(tmp_path / name)


def test_clipped_response_is_rejected(tmp_path: Path):
    soundfile.write(tmp_path / "a.wav", SAMPLES, 48_000, subtype="PCM_16")
    with pytest.raises(FileError, match="clipped at full scale"):
        response(tmp_path / "a.wav")
    soundfile.write(tmp_path / "a.wav", SAMPLES, 48_000, subtype="FLOAT")
    np.testing.assert_allclose(response(tmp_path / "a.wav")[0].samples, SAMPLES, atol=1e-6)


TIMES = (np.arange(4800) - 48) / 48_000


@pytest.mark.parametrize(
    ("arrays", "rate_hz", "start_s"),
    [
        ({"primary": SAMPLES, "fs": "48000"}, 48_000, 0),
        ({"primary": SAMPLES, "t": TIMES}, 48_000, -0.001),
        ({"primary": SAMPLES, "f": np.linspace(0, 24_000, 2401), "fs": 48_000}, 48_000, 0),
    ],
)
def test_axes_and_texts_beside_arrays(tmp_path: Path, arrays: dict[str, Any], rate_hz: float, start_s: float):
    for name, save in (
        ("a.npz", lambda file: np.savez(file, **arrays)),
        ("a.mat", lambda file: savemat(file, arrays)),
    ):
        save(tmp_path / name)
        found, _ = response(tmp_path / name, "primary", rate_hz=44_100)
        assert (found.rate_hz, found.start_s) == (rate_hz, pytest.approx(start_s))
        np.testing.assert_array_equal(found.samples, SAMPLES)
        assert set(read(tmp_path / name).channels) == {"primary"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"primary": SAMPLES, "t": TIMES, "fs": 44_100}, "does not fit the sample rate"),
        ({"primary": SAMPLES, "fs": "fast"}, "no number"),
        ({"primary": SAMPLES, "fs": 48_000, "t0": -0.001}, "t0 = -0.001"),
        ({"primary": SAMPLES, "fs": 48_000, "scale": 0.5}, "scale = 0.5"),
        ({"primary": np.abs(SAMPLES), "freq": np.arange(4800.0)}, "not complex"),
        ({"primary_db": SAMPLES, "fs": 48_000}, "no impulse response"),
        ({"primary": np.fft.rfft(SAMPLES[:99] * 0.9 ** np.arange(99)).conj(), "fs": 48_000}, "before time zero"),
    ],
)
def test_arrays_in_doubt_are_rejected(tmp_path: Path, arrays: dict[str, Any], message: str):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(FileError, match=message):
        response(tmp_path / "a.npz", "primary")
