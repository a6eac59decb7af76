"""Random splits of listeners, and of recordings, into support (training) and query (held out)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from training.datasets.path_pairs import DatasetError, DatasetKind

PAPER_SUPPORT = {"pandar": (7, 23), "simulated": (7, 23), "index": (7, 23), "ten-path": (3, 10)}
FULL_SUPPORT_FROM = 14  # from this number of persons on, seven leave at least as many held out


@dataclass(frozen=True)
class Split:
    """One partition of the listeners: `support` trains, `query` is held out; both ascending.

    Raises
    ------
    DatasetError
        A listener or a recording is on both sides, or a side is empty.
    """

    index: int
    support: tuple[str, ...]
    query: tuple[str, ...]
    # Recordings for training; empty, with query_recordings, if all may train and score.
    support_recordings: tuple[str, ...] = ()
    query_recordings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shared = sorted(
            set(self.support).intersection(self.query)
            | set(self.support_recordings).intersection(self.query_recordings)
        )
        if shared:
            raise DatasetError(f"split {self.index}: found {', '.join(shared)} in support and in query")
        if bool(self.support_recordings) != bool(self.query_recordings):
            raise DatasetError(
                f"split {self.index}: found {len(self.support_recordings)} support and "
                f"{len(self.query_recordings)} query recordings, expected some of each or none"
            )
        if not self.support or not self.query:
            raise DatasetError(
                f"split {self.index}: found {len(self.support)} support and {len(self.query)} query "
                "listeners, expected at least one of each"
            )


def default_n_support(n_listeners: int, dataset: DatasetKind) -> int:
    """Return the default number of support listeners.

    Persons: seven of at least fourteen, else the paper's share (7 of 23). Ten-path: the paper's share (3 of 10). At
    least one.
    """
    n_support, n_all = PAPER_SUPPORT[dataset]
    if dataset != "ten-path" and n_listeners >= FULL_SUPPORT_FROM:
        return n_support
    return max(1, round(n_listeners * n_support / n_all))


def make_splits(
    listeners: Iterable[str],
    n_splits: int = 10,
    n_support: int | None = None,
    seed: int = 0,
    dataset: DatasetKind = "pandar",
) -> list[Split]:
    """Draw different random splits of the listeners.

    The draw is by listener, never by ear or condition. Split i depends on the listeners, the seed and i
    only: more splits leave the first ones unchanged.

    Parameters
    ----------
    listeners
        Identities; order and repetitions do not matter.
    n_splits
        Number of splits, at least 1.
    n_support
        Support listeners per split, or None for `default_n_support`.
    seed
        Seed of the draw.
    dataset
        Decides the default of `n_support`.

    Raises
    ------
    DatasetError
        Fewer than two listeners, no room for `n_support`, or fewer different splits than requested.
    """
    names = tuple(sorted(set(listeners)))
    if len(names) < 2:
        raise DatasetError(f"splits: found {len(names)} listeners, expected at least 2 (one to hold out)")
    if n_splits < 1:
        raise DatasetError(f"splits: found n_splits = {n_splits}, expected at least 1")
    if n_support is None:
        n_support = default_n_support(len(names), dataset)
    if not 1 <= n_support < len(names):
        raise DatasetError(
            f"splits: found n_support = {n_support}, expected 1 to {len(names) - 1} of {len(names)} listeners"
        )
    if n_splits > comb(len(names), n_support):
        raise DatasetError(
            f"splits: found n_splits = {n_splits}, expected at most {comb(len(names), n_support)}, "
            f"the number of different splits of {len(names)} listeners with {n_support} in support"
        )
    generator = np.random.default_rng(seed)
    supports: list[tuple[str, ...]] = []
    while len(supports) < n_splits:
        chosen = generator.permutation(len(names))[:n_support]
        support = tuple(names[i] for i in sorted(chosen))
        if support not in supports:
            supports.append(support)
    return [
        Split(index, support, tuple(name for name in names if name not in support))
        for index, support in enumerate(supports)
    ]


def with_recordings(splits: Sequence[Split], recordings: Sequence[str], seed: int = 0) -> list[Split]:
    """Put half of the recordings on either side of the splits.

    Splits 2 i and 2 i + 1 exchange the sides of one draw, so that every recording is held out once. The draw of a pair
    depends only on the recordings, the seed and i.

    Raises
    ------
    DatasetError
        There are fewer than two recordings.
    """
    names = tuple(sorted(recordings))
    if len(names) < 2:
        raise DatasetError(f"splits: found {len(names)} recordings, expected at least 2 (one to hold out)")
    folded = []
    for split in splits:
        order = np.random.default_rng([seed, split.index // 2]).permutation(len(names))
        half = len(names) // 2
        sides = [tuple(names[i] for i in sorted(part)) for part in (order[:half], order[half:])]
        support, query = sides if split.index % 2 == 0 else sides[::-1]
        folded.append(replace(split, support_recordings=support, query_recordings=query))
    return folded
