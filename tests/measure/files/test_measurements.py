"""Files of measurement programs are read; unusable ones are named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.io import savemat

from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.measurements import paths_at_48_khz, read, recording, response
from prime_anc.measure.files.resampling import Response, at_48_khz
from prime_anc.requests.errors import RequestError
from prime_anc.requests.wav import read_wav

SAMPLES = np.random.default_rng(0).standard_normal(4800)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.aiff"])
def test_stereo_audio_is_outer_then_error(tmp_path: Path, name: str):
    both = 0.1 * np.stack([SAMPLES, SAMPLES[::-1]], 1)
    soundfile.write(tmp_path / name, both, 48_000)
    found = recording(tmp_path / name)
    np.testing.assert_allclose(np.stack(found.signals, 1), both, atol=1e-4)
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


def _wav(samples: Any, rate: int = 48_000) -> Any:
    return lambda file: soundfile.write(file, samples, rate)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.wav", _wav(SAMPLES), "one channel"),
        ("a.wav", _wav(np.zeros((0, 2))), "no samples"),
        ("a.wav", _wav(np.zeros((4800, 2))), "silent"),
        ("a.wav", _wav(0.1 * np.ones((48_000 * 61, 2))), "lasts 61 s"),
        ("a.wav", _wav(np.ones((100, 2)), 2000), "sample rate is 2000"),
        ("a.xyz", lambda file: file.write_bytes(b""), "not known"),
        ("a.npz", lambda file: file.write_bytes(b"PK"), "no readable NumPy"),
        ("a.mat", lambda file: file.write_bytes(b"nothing"), "no readable MATLAB"),
        ("a.sofa", lambda file: file.write_bytes(b""), "Data_Delay=sofa.Data_Delay"),
    ],
)
def test_unusable_file_is_named(tmp_path: Path, name: str, write: Any, message: str):
    write(tmp_path / name)
    with pytest.raises(FileError, match=message):
        recording(tmp_path / name)


def test_clipping_is_counted_before_resampling(tmp_path: Path):
    """Flat tops below full scale too, as after a change of volume."""
    samples = np.random.default_rng(1).standard_normal(88_200)
    clipped = 0.3 * np.clip(samples, -1.5, 1.5)
    soundfile.write(tmp_path / "a.wav", np.stack([0.1 * samples, clipped], 1), 44_100)
    assert recording(tmp_path / "a.wav").clipped_shares == pytest.approx([0, 0.134], abs=0.01)


def test_cut_wav_is_rejected(tmp_path: Path):
    file = tmp_path / "a.wav"
    soundfile.write(file, 0.1 * SAMPLES, 48_000, subtype="PCM_16")
    cut = file.read_bytes()[:-2]
    file.write_bytes(cut)
    with pytest.raises(FileError, match="promises more bytes than it holds"):
        response(file)
    with pytest.raises(RequestError, match="cut off"):
        read_wav(cut, "takes.0.x.wav")


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
        ({"primary": SAMPLES, "t": TIMES}, 48_000, -0.001),
        ({"primary": SAMPLES, "f": np.linspace(0, 24_000, 2401), "fs": 48_000}, 48_000, 0),
    ],
)
def test_axes_beside_arrays(tmp_path: Path, arrays: dict[str, Any], rate_hz: float, start_s: float):
    for name, save in (
        ("a.npz", lambda file: np.savez(file, **arrays)),
        ("a.mat", lambda file: savemat(file, arrays)),
    ):
        save(tmp_path / name)
        found, _ = response(tmp_path / name, "primary", rate_hz=44_100)
        assert (found.rate_hz, found.start_s) == (rate_hz, pytest.approx(start_s))
        np.testing.assert_array_equal(found.samples, SAMPLES)
        assert set(read(tmp_path / name).channels) == {"primary"}
        with pytest.raises(FileError, match="name one of them feedback"):
            read(tmp_path / name).name_of("feedback")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"primary": SAMPLES, "t": TIMES, "fs": 44_100}, "does not fit the sample rate"),
        ({"primary": SAMPLES, "fs": 48_000, "t0": -0.001}, "what t0 = -0.001"),
        ({"primary": np.stack([SAMPLES] * 2), "fs": 48_000, "delays": [0, 4]}, "what delays = 4"),
        ({"primary": np.abs(SAMPLES), "freq": np.arange(4800.0)}, "values at frequencies"),
        ({"primary_db": SAMPLES, "fs": 48_000}, "no impulse response"),
        ({"primary": np.fft.rfft(SAMPLES[:99] * 0.9 ** np.arange(99)).conj(), "fs": 48_000}, "is complex"),
    ],
)
def test_arrays_in_doubt_are_rejected(tmp_path: Path, arrays: dict[str, Any], message: str):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(FileError, match=message):
        response(tmp_path / "a.npz", "primary")


@pytest.mark.parametrize(
    "columns",
    [
        *(("a.mat#ir.P", "a.mat"), ("b.mat#ir[1].h", "b.mat#ir[2].h"), ("c.mat#ir[1]", "c.mat#ir[2]")),
        *(("a.irs#1", "a.irs#2"), ("a.tsv", "a.tsv")),
    ],
)
def test_paths_are_found_in_structs_and_columns(tmp_path: Path, columns: tuple[str, str]):
    savemat(tmp_path / "a.mat", {"ir": {"P": SAMPLES, "S": -SAMPLES, "fs": 48_000}})
    items = np.empty(2, object)
    items[:] = SAMPLES, -SAMPLES
    savemat(tmp_path / "b.mat", {"ir": np.array([(item,) for item in items], [("h", object)]), "fs": 48_000})
    savemat(tmp_path / "c.mat", {"ir": items, "fs": 48_000})
    soundfile.write(tmp_path / "a.irs", np.stack([SAMPLES, -SAMPLES], 1), 48_000, format="WAV", subtype="DOUBLE")
    rows = [f"{n / 48_000:.9f}\t{x}\t{-x}" for n, x in enumerate(SAMPLES)]
    (tmp_path / "a.tsv").write_text("\n".join(["time (s)\tPriPath\tSecPath", *rows]))
    for name, sign in zip(("primary", "secondary"), (1, -1), strict=True):
        found, _ = response(tmp_path / columns[sign < 0], name)
        np.testing.assert_array_equal(found.samples, sign * SAMPLES)
        assert found.rate_hz == 48_000


@pytest.mark.parametrize("name", ["a.npz", "a.mat"])
def test_delays_of_sofa_are_applied(tmp_path: Path, name: str):
    """As the advice for .sofa saves them, and as the SOFA Toolbox's structs."""
    early = np.stack([SAMPLES, np.r_[SAMPLES[4:], np.zeros(4)]])
    np.savez(tmp_path / "a.npz", h=early[None], Data_Delay=[[0, 4]], Data_SamplingRate=48_000)
    savemat(tmp_path / "a.mat", {"Obj": {"Data": {"IR": early[None], "Delay": [[0, 4]], "SamplingRate": 48_000}}})
    found = [response(tmp_path / f"{name}#{n}")[0] for n in (1, 2)]
    samples, _ = paths_at_48_khz(dict(zip(("primary", "secondary"), found, strict=True)))
    np.testing.assert_allclose(samples["secondary"][4:4800], samples["primary"][4:4800])
    np.savez(tmp_path / "a.npz", h=early, Data_Delay=[0, 4, 9], sample_rate=48_000)
    with pytest.raises(FileError, match="its delays have the shape"):
        read(tmp_path / "a.npz")


def test_common_start_is_taken_off(tmp_path: Path):
    """A second before all, as in WAV files of REW: the paths stay as far apart as they are."""
    paths = {}
    for name, delay in (("primary", 48_007), ("secondary", 48_000), ("feedback", 48_003)):
        soundfile.write(tmp_path / f"{name}.wav", np.r_[np.zeros(delay), SAMPLES], 48_000, subtype="DOUBLE")
        paths[name] = response(tmp_path / f"{name}.wav")[0]
    samples, notes = paths_at_48_khz(paths)
    onset = int(np.argmax(samples["secondary"] != 0))
    for name, late in (("primary", 7), ("secondary", 0), ("feedback", 3)):
        np.testing.assert_array_equal(samples[name][onset + late :], SAMPLES)
    assert "samples before all are left out" in notes[0]
    for late in ("secondary", "feedback"):
        with pytest.raises(FileError, match="100 % of its energy lie beyond"):
            paths_at_48_khz(paths | {late: replace(paths[late], samples=SAMPLES)})
    with pytest.raises(FileError, match="with the other paths of its measurement"):
        paths_at_48_khz({"feedback": paths["feedback"]})


@pytest.mark.parametrize("rate_hz", [16_000, 96_000, 192_000])
def test_other_rate_keeps_transfer_function(rate_hz: float):
    """At 0 Hz it is the sum of the samples."""
    pulse = np.exp(-(((np.arange(400) - 200) / 20) ** 2))
    assert at_48_khz(Response("a", pulse, rate_hz)).sum() == pytest.approx(pulse.sum(), rel=1e-3)
