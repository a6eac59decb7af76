"""Splits by listener."""

from math import comb

import pytest

from training.data import default_n_support, make_splits, with_recordings
from training.datasets.path_pairs import DatasetError

PERSONS = tuple(f"person-{number:02d}" for number in range(1, 16))


@pytest.mark.parametrize("n_listeners", [2, 3, 14, 23])
@pytest.mark.parametrize("dataset", ["pandar", "ten-path", "simulated"])
def test_splits_partition_listeners(n_listeners: int, dataset: str) -> None:
    listeners = [f"person-{number:02d}" for number in range(n_listeners)]
    n_splits = min(10, comb(n_listeners, default_n_support(n_listeners, dataset)))
    for split in make_splits(listeners, n_splits, dataset=dataset):
        assert not set(split.support) & set(split.query)
        assert sorted(split.support + split.query) == listeners


def test_splits_differ_and_repeat_by_seed() -> None:
    splits = make_splits(PERSONS, 10, seed=3)
    assert [split.index for split in splits] == list(range(10))
    assert len({split.support for split in splits}) == 10
    assert splits == make_splits(reversed(PERSONS), 10, seed=3)
    assert splits != make_splits(PERSONS, 10, seed=4)
    assert make_splits(PERSONS, 4, seed=3) == splits[:4]


def test_pairs_of_splits_hold_out_all_recordings() -> None:
    names = tuple(f"place{number}" for number in range(8))
    splits = with_recordings(make_splits(PERSONS, 4), names)
    assert splits == with_recordings(make_splits(PERSONS, 6), names)[:4]
    for first, second in (splits[:2], splits[2:]):
        assert len(first.support_recordings) == len(first.query_recordings) == 4
        assert sorted(first.support_recordings + first.query_recordings) == sorted(names)
        assert second.support_recordings == first.query_recordings
    assert len({split.support_recordings for split in splits}) == 4
    with pytest.raises(DatasetError, match="found 1 recordings"):
        with_recordings(splits, names[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"listeners": [*PERSONS[:1]] * 5}, "found 1 listeners, expected at least 2"),
        ({"n_support": 15}, "n_support = 15, expected 1 to 14 of 15"),
        ({"listeners": PERSONS[:4], "n_splits": 7, "n_support": 2}, "n_splits = 7, expected at most 6"),
    ],
)
def test_impossible_number_is_rejected(options: dict, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        make_splits(**({"listeners": PERSONS} | options))
