"""Pairs of paths: what is refused, what a fingerprint follows."""

from dataclasses import replace

import numpy as np
import pytest

from training.datasets.path_pairs import DatasetError, PathPair
from training.datasets.simulated import simulate_listeners


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (np.zeros(8), "all samples are zero"),
        (np.array([1.0, np.nan, np.inf]), "2 samples are NaN or infinite"),
        (np.ones((2, 4)), r"shape \(2, 4\)"),
        (np.ones(8193), r"shape \(8193,\), expected one dimension of 1 to 8192"),
        (np.ones(0), r"shape \(0,\)"),
        (["a"], "list values, not real numbers"),
    ],
)
@pytest.mark.parametrize("path", ["primary", "secondary"])
def test_unusable_response_is_rejected_by_name(path: str, response: object, message: str) -> None:
    paths = {"primary": np.ones(4), "secondary": np.ones(4)} | {path: response}
    with pytest.raises(DatasetError, match=rf"{path} path of person-01 \(left\): .*{message}"):
        PathPair("person-01", "left", "original", "normal", **paths)  # type: ignore[arg-type]


def test_pair_counts_once() -> None:
    dataset = simulate_listeners(1)
    with pytest.raises(DatasetError, match="simulated-001/left/original occurs twice"):
        replace(dataset, pairs=(*dataset.pairs, dataset.pairs[0]))
    with pytest.raises(DatasetError, match="there is no pair"):
        replace(dataset, pairs=())
