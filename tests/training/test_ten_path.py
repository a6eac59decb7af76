"""Recordings of the ten-path form, made from measured paths, give these paths back."""

import csv
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import fftconvolve

from tests.model_store.test_devices import ears
from training.data import open_dataset
from training.datasets import ten_path
from training.datasets.path_pairs import DatasetError

RATE = 48_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two noises through two paths, read in blocks of one second."""
    monkeypatch.setattr(ten_path, "BLOCK_SAMPLES", RATE)
    rng = np.random.default_rng(0)
    rows = []
    for noise in ("hall", "street"):
        x = 0.1 * rng.standard_normal(8 * RATE)
        soundfile.write(tmp_path / f"{noise}.wav", x, RATE, subtype="FLOAT")
        rows.append(("reference", "", noise, f"{noise}.wav"))
        for path, ear in enumerate(ears()[:2]):
            file = f"{noise}-{path}.wav"
            soundfile.write(tmp_path / file, fftconvolve(x, ear.primary[:1500])[: len(x)], RATE, subtype="FLOAT")
            rows.append(("primary", str(path), noise, file))
    for path, ear in enumerate(ears()[:2]):
        soundfile.write(tmp_path / f"s{path}.wav", ear.secondary, RATE, subtype="FLOAT")
        rows.append(("secondary", str(path), "", f"s{path}.wav"))
    with (tmp_path / ten_path.TABLE).open("w", newline="") as file:
        csv.writer(file).writerows([("kind", "path", "noise", "file"), *rows])
    return tmp_path


def test_primary_paths_are_identified(folder: Path) -> None:
    found = open_dataset("ten-path", folder)
    assert [pair.listener for pair in found.pairs] == ["path-00", "path-01"]
    for pair, ear in zip(found.pairs, ears(), strict=False):
        expected = np.pad(ear.primary[:1500], (0, 548))
        # A Hann window of 8192 samples leaves out some of late lags.
        assert np.linalg.norm(pair.primary - expected) < 0.1 * np.linalg.norm(expected)
        np.testing.assert_allclose(pair.secondary, ear.secondary, atol=1e-6)


def test_missing_recording_is_named(folder: Path) -> None:
    (folder / "hall-1.wav").unlink()
    with pytest.raises(DatasetError, match=r"hall-1\.wav"):
        open_dataset("ten-path", folder)
