"""The PANDAR reader, on files of the same layout written here and on the measured ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.six_ears import CHANNELS, PERSONS_FOLDER, person_file, write_person
from training.datasets.pandar import read_directions, read_pandar
from training.datasets.path_pairs import DatasetError


def write_ita(file: Path, **changed: Any) -> None:
    """A person's file of random responses."""
    random = np.random.default_rng(int(file.name.split("_")[2])).standard_normal((8192, 6))
    write_person(file, {"L": "normal", "R": "loose"}, **({"data": random} | changed))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A folder above a database of persons 2 and 11."""
    for number in (11, 2):
        write_ita(person_file(tmp_path / PERSONS_FOLDER, number))
    return tmp_path


def test_both_ears_of_every_person_are_read_whole(database: Path) -> None:
    dataset = read_pandar(database)
    names = ["person-02/left", "person-02/right", "person-11/left", "person-11/right"]
    assert [f"{pair.listener}/{pair.ear}" for pair in dataset.pairs] == names
    written = np.random.default_rng(11).standard_normal((8192, 6))
    np.testing.assert_array_equal(dataset.pairs[2].primary, written[:, 4])
    np.testing.assert_array_equal(dataset.pairs[3].secondary, written[:, 1])
    assert (dataset.primary_taps, dataset.n_fft) == (8192, 32768)
    assert dataset.licence == "MIT"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"samplingRate": 44100.0}, r"a sample rate of 44100 Hz, expected 48000 Hz"),
        ({"data": np.ones((4096, 6))}, r"4096 samples in SecondaryL, expected 8192"),
        ({"data": np.ones((8192, 5))}, r"5 channels but 6 names"),
        ({"data": np.zeros((8192, 6))}, r"all samples are zero"),
        ({"channelNames": np.array(["a", "b", "c", "d", "e", "f"], dtype=object)}, r"expected PrimaryL as well"),
    ],
)
def test_unusable_file_is_named_with_what_is_wrong(database: Path, changed: dict[str, Any], message: str) -> None:
    file = person_file(database / PERSONS_FOLDER, 11)
    write_ita(file, **changed)
    with pytest.raises(DatasetError, match=message) as caught:
        read_pandar(database)
    assert file.name in str(caught.value)


def test_directions_share_heads_secondary_path(tmp_path: Path) -> None:
    chamber = tmp_path / "PANDAR_database_1.0" / "BoseQC20" / "anechoic_chamber"
    head = np.random.default_rng(300).standard_normal((8192, 4))
    write_ita(
        chamber / "secondary+afb" / "PANDAR_TF_300_Sec_AFB_direction_BoseQC20.ita",
        data=head,
        channelNames=np.array(CHANNELS[:4], dtype=object),
        channelUserData=np.array([], dtype=object),
    )
    written = {}
    for number in (304, 301):
        written[number] = np.random.default_rng(number).standard_normal((8192, 2))
        write_ita(
            chamber / "primary" / f"PANDAR_TF_{number}_primary_direction_BoseQC20.ita",
            data=np.fft.rfft(written[number], axis=0).astype(np.complex64),
            channelNames=np.array(CHANNELS[4:], dtype=object),
        )
    dataset = read_directions(tmp_path)
    places = [pair.place for pair in dataset.pairs]
    assert places == ["left, 0 deg", "right, 0 deg", "left, 15 deg", "right, 15 deg"]
    assert dataset.listeners == ("dummy-head",)
    # 24 bits of spectra up to 400, 8192 bins of which make a sample.
    np.testing.assert_allclose(dataset.pairs[3].primary, written[304][:, 1], atol=1e-5)
    np.testing.assert_array_equal(dataset.pairs[2].secondary, head[:, 0])
    np.testing.assert_array_equal(dataset.pairs[3].feedback, head[:, 3])
    assert read_directions(chamber).fingerprint == dataset.fingerprint


def test_two_copies_of_person_are_rejected(database: Path) -> None:
    # One person on both sides of a split would make every held-out figure worthless.
    persons = database / PERSONS_FOLDER
    person_file(persons, 2).rename(persons / "PANDAR_TF_011_person_copy.ita")
    with pytest.raises(DatasetError, match=r"person 11 twice"):
        read_pandar(database)
