"""The ten noises, their readers and their mean spectrum; synthetic noises."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from training.datasets.noise import (
    N_SAMPLES,
    TARGET_RMS,
    pink_noise,
    read_noise,
    reference_psd,
    simulated_noise,
    white_noise,
)
from training.datasets.path_pairs import DatasetError
from training.datasets.synthetic_noise import AIRPLANE_HIGHEST_HZ, airplane_noise, synthetic_noise

N_SHORT = 480_000  # ten seconds, the least that is taken


def recording(number: int, n_samples: int = N_SHORT) -> np.ndarray:
    """Quiet at first, so that levelling over the whole file and over its beginning differ: int16."""
    generator = np.random.default_rng(number)
    signal = generator.normal(0, 1000 * (1 + number), n_samples)
    signal[: n_samples // 2] *= 0.25
    return signal.clip(-32768, 32767).astype(np.int16)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    for number in range(8):
        wavfile.write(tmp_path / f"place{number}.wav", 48000, recording(number % 4))
    return tmp_path


def rms(signals: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(signals**2, axis=-1))


def test_eight_recordings_then_white_and_pink(plain: Path) -> None:
    noise_set = read_noise(plain)
    assert noise_set.names == (*(f"place{number}" for number in range(8)), "white", "pink")
    assert noise_set.n_recordings == 8
    assert noise_set.signals.shape == (10, N_SHORT)
    assert noise_set.signals.dtype == np.float64
    np.testing.assert_allclose(rms(noise_set.signals[:8]), 0.05, rtol=1e-12)
    expected = recording(0).astype(float)
    np.testing.assert_allclose(noise_set.signals[0], expected * 0.05 / rms(expected), rtol=1e-12)
    assert not noise_set.is_simulated


SECONDS, SOUND = np.arange(N_SHORT) / 48_000, recording(1)


@pytest.mark.parametrize(
    ("rate_hz", "signal", "message"),
    [
        (44_100, SOUND, "rate of 44100 Hz, expected 48000 Hz"),
        (48_000, SOUND[:-1], "found 10.00 s, expected at least 10 s"),
        (48_000, np.where((SECONDS >= 8.5) & (SECONDS < 9), 20, SOUND).astype(np.int16), "silence from 8.5 to 9 s"),
        (48_000, np.where(SECONDS < 4, 1e-9, SOUND / 32768).astype(np.float32), "silence from 0 to 4 s"),
        (48_000, np.where(SECONDS == 1, np.nan, 0.1).astype(np.float32), "NaN or infinity"),
    ],
)
def test_unusable_recording_is_named(plain: Path, rate_hz: int, signal: np.ndarray, message: str) -> None:
    wavfile.write(plain / "place5.wav", rate_hz, signal)
    with pytest.raises(DatasetError, match=rf"place5\.wav.*{message}"):
        read_noise(plain)


def test_too_few_recordings_or_no_folder(plain: Path) -> None:
    (plain / "place5.wav").unlink()
    with pytest.raises(DatasetError, match="found 7 noise recordings, expected at least 8"):
        read_noise(plain)
    with pytest.raises(DatasetError, match="this folder does not exist"):
        read_noise(plain / "nowhere")


def octave_levels_db(signal: np.ndarray) -> np.ndarray:
    """Mean power density from 40 to 10240 Hz in octaves, dB."""
    power = np.abs(np.fft.rfft(signal)) ** 2
    frequency_hz = np.fft.rfftfreq(signal.size, 1 / 48000)
    edges = 40 * 2.0 ** np.arange(9)
    pairs = pairwise(edges)
    return np.array([10 * np.log10(power[(frequency_hz >= a) & (frequency_hz < b)].mean()) for a, b in pairs])


def test_white_is_flat_and_pink_falls() -> None:
    # An octave from 40 Hz on holds 480 bins: a spread of 0.2 dB, so 1 dB is five sigma.
    np.testing.assert_allclose(np.diff(octave_levels_db(white_noise(0))), 0, atol=1)
    np.testing.assert_allclose(np.diff(octave_levels_db(pink_noise(0))), -10 * np.log10(2), atol=1)
    for noise in (white_noise(0), pink_noise(0)):
        assert rms(noise) == pytest.approx(0.05, rel=1e-12)
        assert not np.array_equal(noise, white_noise(1))


def test_reference_spectrum_sums_to_mean_square() -> None:
    noise_set = simulated_noise(0)
    psd = reference_psd(noise_set)
    assert psd.shape == (16385,)
    # By hand: Hann windows, one-sided by doubling all but 0 Hz and Nyquist.
    window = np.hanning(32769)[:-1]
    expected = np.zeros(16385)
    for signal in noise_set.signals:
        frames = [signal[start : start + 32768] for start in range(0, 192000 - 32768 + 1, 16384)]
        assert len(frames) == 10
        for frame in frames:
            power = np.abs(np.fft.rfft(window * frame)) ** 2 / (32768 * np.sum(window**2))
            power[1:-1] *= 2
            expected += power / (len(frames) * len(noise_set.signals))
    np.testing.assert_allclose(psd, expected, rtol=1e-9)
    # The windows weigh the four seconds unevenly, so the two agree as far as the levels are steady.
    assert psd.sum() == pytest.approx(np.mean(noise_set.signals[:, :192000] ** 2), rel=0.05)


def test_synthetic_noises_have_level_and_seed() -> None:
    noises, fewer = synthetic_noise(3, 5), synthetic_noise(2, 5)
    assert (noises.signals.shape, noises.n_recordings) == ((3, N_SAMPLES), 3)
    np.testing.assert_allclose(rms(noises.signals), TARGET_RMS, rtol=1e-12)
    np.testing.assert_array_equal(fewer.signals, noises.signals[:2])
    assert fewer.fingerprint != noises.fingerprint
    assert not np.allclose(synthetic_noise(1, 6).signals, noises.signals[:1])


def test_airplane_has_nothing_above_edge() -> None:
    power = np.abs(np.fft.rfft(airplane_noise(0))) ** 2
    frequency_hz = np.fft.rfftfreq(N_SAMPLES, 1 / 48_000)
    above = frequency_hz > AIRPLANE_HIGHEST_HZ + 100
    # Its level varies, slowly: what that spreads beyond the edge is far below any quantisation.
    assert power[above].sum() < 1e-9 * power.sum()
    assert power[(frequency_hz > 4000) & ~above].sum() > 1e-5 * power.sum()
