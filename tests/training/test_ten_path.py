"""The ten-path reader: three formats, one meaning."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from training.datasets.path_pairs import DatasetError
from training.datasets.ten_path import read_ten_path


@pytest.fixture
def responses() -> tuple[np.ndarray, np.ndarray]:
    # Float32 values, so that every format holds them exactly.
    generator = np.random.default_rng(0)
    primary, secondary = (generator.standard_normal(300).astype(np.float32).astype(np.float64) for _ in range(2))
    return primary, secondary


def write(
    folder: Path, name: str, kind: str, primary: np.ndarray, secondary: np.ndarray, rate: int = 48000
) -> None:
    if kind == "npz":
        np.savez(folder / f"{name}.npz", primary=primary, secondary=secondary, sample_rate=rate)
    elif kind == "csv":
        np.savetxt(folder / f"{name}.csv", np.column_stack([primary, secondary]), delimiter=",")
    elif kind == "headed csv":
        table = np.column_stack([primary, secondary])
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header="primary,secondary", comments="")
    else:
        wavfile.write(folder / f"{name}_primary.wav", rate, primary.astype(np.float32))
        wavfile.write(folder / f"{name}_secondary.wav", rate, secondary.astype(np.float32))


@pytest.mark.parametrize("kind", ["npz", "wav", "csv", "headed csv"])
def test_every_format_gives_the_same_pair(
    tmp_path: Path, kind: str, responses: tuple[np.ndarray, np.ndarray]
) -> None:
    write(tmp_path, "07", kind, *responses)
    (tmp_path / "notes.txt").write_text("not a pair")
    dataset = read_ten_path(tmp_path)
    (pair,) = dataset.pairs
    assert (pair.listener, pair.ear, pair.condition) == ("path-07", "mono", "original")
    np.testing.assert_array_equal(pair.primary, responses[0])
    np.testing.assert_array_equal(pair.secondary, responses[1])
    assert (dataset.primary_taps, dataset.secondary_taps, dataset.n_fft) == (2048, 2048, 8192)
    assert not dataset.is_simulated


def test_formats_may_stand_side_by_side(tmp_path: Path, responses: tuple[np.ndarray, np.ndarray]) -> None:
    for name, kind in (("03", "npz"), ("10", "wav"), ("2", "csv")):
        write(tmp_path, name, kind, *responses)
    assert read_ten_path(tmp_path).listeners == ("path-02", "path-03", "path-10")


def test_a_long_response_is_cut_only_where_nothing_is_lost(tmp_path: Path) -> None:
    fading = np.zeros(9000)
    fading[0], fading[8500] = 1.0, 0.005  # -46 dB
    np.savez(tmp_path / "01.npz", primary=fading, secondary=fading)
    assert read_ten_path(tmp_path).pairs[0].primary.shape == (8192,)
    fading[8500] = 0.02  # -34 dB
    np.savez(tmp_path / "01.npz", primary=fading, secondary=fading)
    with pytest.raises(DatasetError, match=r"9000 samples with -34.0 dB of their energy after 8192"):
        read_ten_path(tmp_path)


def test_half_a_pair_and_two_formats_of_one_are_refused(
    tmp_path: Path, responses: tuple[np.ndarray, np.ndarray]
) -> None:
    write(tmp_path, "04", "wav", *responses)
    (tmp_path / "04_secondary.wav").unlink()
    with pytest.raises(DatasetError, match=r"found 04_primary\.wav for pair 4"):
        read_ten_path(tmp_path)
    write(tmp_path, "04", "npz", *responses)
    with pytest.raises(DatasetError, match=r"found 04.npz, 04_primary.wav for pair 4"):
        read_ten_path(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("01.npz", b"no archive", "no readable NumPy file"),
        ("01.csv", b"1,2\n3,four\n", "cannot be read as comma-separated"),
        ("01.csv", b"1,2,3\n4,5,6\n", "2 rows and 3 columns"),
        ("01.csv", b"", "expected the two columns"),
        ("01.csv", b"1,2\nnan,5\n", "NaN"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        read_ten_path(tmp_path)
    assert name in str(caught.value)


def test_missing_arrays_and_stereo_are_refused(tmp_path: Path, responses: tuple[np.ndarray, np.ndarray]) -> None:
    np.savez(tmp_path / "01.npz", primary=responses[0], tertiary=responses[1])
    with pytest.raises(DatasetError, match="holds primary, tertiary; name one of them secondary"):
        read_ten_path(tmp_path)
    np.savez(tmp_path / "01.npz", primary=responses[0])
    with pytest.raises(DatasetError, match="holds one array"):
        read_ten_path(tmp_path)
    (tmp_path / "01.npz").unlink()
    for path in ("primary", "secondary"):
        wavfile.write(tmp_path / f"01_{path}.wav", 48000, np.ones((9, 2), dtype=np.float32))
    with pytest.raises(DatasetError, match="use a file with that channel alone"):
        read_ten_path(tmp_path)


def test_an_empty_folder_says_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no pair of paths; give NN.npz"):
        read_ten_path(tmp_path)
    with pytest.raises(DatasetError, match="this folder does not exist"):
        read_ten_path(tmp_path / "nowhere")
