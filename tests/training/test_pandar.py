"""The PANDAR reader, on files of the same layout written here and on the measured ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from training.datasets.pandar import read_handling, read_pandar
from training.datasets.path_pairs import DatasetError

CHANNELS = ("SecondaryL", "SecondaryR", "FeedbackL", "FeedbackR", "PrimaryL", "PrimaryR")
LEVELS = (
    ".",
    "PANDAR_database_1.0",
    "PANDAR_database_1.0/BoseQC20",
    "PANDAR_database_1.0/BoseQC20/acoustic_booth",
    "PANDAR_database_1.0/BoseQC20/acoustic_booth/persons",
)


def write_ita(file: Path, **changed: Any) -> np.ndarray:
    """A person file in the database's layout; returns its data [8192, 6]."""
    number = int(file.name.split("_")[2])
    data = np.random.default_rng(number).standard_normal((8192, 6))
    rows = np.empty(6, dtype=object)
    for row, channel in enumerate(CHANNELS):
        # As in the database: Primary rows carry the right ear's label.
        fit = "loose" if channel.endswith("R") or channel == "PrimaryL" else "normal"
        rows[row] = np.array([f"Person ID {number}", channel, "person", fit], dtype=object)
    audio = {
        "data": data,
        "channelNames": np.array(CHANNELS, dtype=object),
        "samplingRate": 48000.0,
        "comment": f"Person ID {number}",
        "channelUserData": rows,
    } | changed
    file.parent.mkdir(parents=True, exist_ok=True)
    savemat(str(file), {"ITA_TOOLBOX_AUDIO_OBJECT": audio}, appendmat=False)
    return data


def person(folder: Path, number: int) -> Path:
    return folder / f"PANDAR_TF_{number:03d}_person_BoseQC20.ita"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A folder above a database of persons 2 and 11."""
    for number in (11, 2):
        write_ita(person(tmp_path / LEVELS[-1], number))
    return tmp_path


def test_both_ears_of_every_person_are_read_whole(database: Path) -> None:
    dataset = read_pandar(database)
    assert [(pair.listener, pair.ear) for pair in dataset.pairs] == [
        ("person-02", "left"),
        ("person-02", "right"),
        ("person-11", "left"),
        ("person-11", "right"),
    ]
    written = np.random.default_rng(11).standard_normal((8192, 6))
    np.testing.assert_array_equal(dataset.pairs[2].primary, written[:, 4])
    np.testing.assert_array_equal(dataset.pairs[3].secondary, written[:, 1])
    assert {(pair.primary.shape, pair.primary.dtype.name) for pair in dataset.pairs} == {((8192,), "float64")}
    assert (dataset.primary_taps, dataset.secondary_taps, dataset.n_fft) == (8192, 2048, 32768)
    assert dataset.licence == "MIT"
    assert "RWTH Aachen" in dataset.attribution
    assert not dataset.is_simulated


def test_fit_is_the_ears_own(database: Path) -> None:
    assert [pair.fit for pair in read_pandar(database).pairs[:2]] == ["normal", "loose"]


@pytest.mark.parametrize("level", LEVELS)
def test_any_level_of_the_database_gives_the_same_data(database: Path, level: str) -> None:
    dataset = read_pandar(database / level)
    assert dataset.listeners == ("person-02", "person-11")
    assert dataset.fingerprint == read_pandar(database).fingerprint


def test_fingerprint_follows_the_bytes(database: Path) -> None:
    before = read_pandar(database).fingerprint
    write_ita(person(database / LEVELS[-1], 2), comment="another")
    assert read_pandar(database).fingerprint != before


def test_of_selects_listeners(database: Path) -> None:
    dataset = read_pandar(database)
    assert [pair.name for pair in dataset.of(["person-11"])] == [
        "person-11/left/original",
        "person-11/right/original",
    ]
    with pytest.raises(DatasetError, match=r"no listener person-03, expected some of person-02, person-11"):
        dataset.of(["person-03"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"samplingRate": 44100.0}, r"rate of 44100 Hz, expected 48000 Hz"),
        ({"samplingRate": "fast"}, r"samplingRate = .*expected one number"),
        ({"data": np.ones((4096, 6))}, r"shape \(4096, 6\), expected \(8192, 6\)"),
        ({"data": np.ones((8192, 5))}, r"shape \(8192, 5\), expected \(8192, 6\)"),
        ({"data": np.full((8192, 6), np.nan)}, r"8192 NaN or infinite samples in Primary[LR]|in Secondary[LR]"),
        ({"data": np.zeros((8192, 6))}, r"only zeros"),
        ({"data": np.ones((8192, 6)) * 1j}, r"complex128, expected real"),
        ({"channelNames": np.array(["a", "b", "c", "d", "e", "f"], dtype=object)}, r"expected SecondaryL"),
        ({"channelUserData": np.array(["a", "b"], dtype=object)}, r"2 rows of channelUserData"),
    ],
)
def test_an_unusable_file_is_named_with_what_is_wrong(
    database: Path, changed: dict[str, Any], message: str
) -> None:
    file = person(database / LEVELS[-1], 11)
    write_ita(file, **changed)
    with pytest.raises(DatasetError, match=message) as caught:
        read_pandar(database)
    assert file.name in str(caught.value)


def test_a_truncated_file_is_named(database: Path) -> None:
    file = person(database / LEVELS[-1], 2)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(DatasetError, match=r"PANDAR_TF_002_person"):
        read_pandar(database)


def test_an_empty_or_missing_folder_says_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"found no \*_person_\*.ita file, expected a level of the PANDAR"):
        read_pandar(tmp_path)
    with pytest.raises(DatasetError, match=r"found no such folder"):
        read_pandar(tmp_path / "nowhere")


def test_two_copies_of_a_person_are_refused(database: Path) -> None:
    # One person on both sides of a split would make every held-out figure worthless.
    persons = database / LEVELS[-1]
    person(persons, 2).rename(persons / "PANDAR_TF_011_person_copy.ita")
    with pytest.raises(DatasetError, match=r"person 11 twice"):
        read_pandar(database)


@pytest.mark.measured
def test_measured_database_is_read_as_described(measured_data: Path) -> None:
    dataset = read_pandar(measured_data)
    assert len(dataset.listeners) == 15
    assert len(dataset.pairs) == 30
    assert all(pair.primary.shape == pair.secondary.shape == (8192,) for pair in dataset.pairs)
    unusual = {(pair.listener, pair.ear): pair.fit for pair in dataset.pairs if pair.fit != "normal"}
    assert unusual == {
        ("person-04", "right"): "slightly loose",
        ("person-11", "right"): "slightly loose",
        ("person-23", "right"): "loose",
    }
    for pair in dataset.pairs:
        energy = pair.secondary**2
        assert 10 * np.log10(energy[2048:].sum() / energy.sum()) < -45


@pytest.mark.measured
def test_measured_handling_cases(measured_data: Path) -> None:
    cases = read_handling(measured_data)
    assert {pair.listener: pair.fit for pair in cases.pairs} == {
        "handling-101": "closed and pressed",
        "handling-102": "closed",
        "handling-103": "open",
        "handling-104": "open",
    }
    assert len(cases.pairs) == 8
