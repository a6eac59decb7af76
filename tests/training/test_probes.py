"""What trains and what probes where recordings are held out."""

import numpy as np
import pytest

from training.datasets.noise import NoiseSet, simulated_noise
from training.datasets.path_pairs import DatasetError
from training.datasets.splits import Split, make_splits, with_recordings
from training.probes import N_SYNTHETIC, SNRS_DB, query_noises, query_probes, support_noises


@pytest.fixture(scope="module")
def noise() -> NoiseSet:
    return simulated_noise(0)


@pytest.fixture(scope="module")
def split(noise: NoiseSet) -> Split:
    (split,) = with_recordings(make_splits("abc", 1, n_support=1), noise.names[:8])
    return split


def test_the_support_knows_its_recordings_and_synthetic_noises_only(noise: NoiseSet, split: Split) -> None:
    known = support_noises(noise, split.support_recordings, 0)
    assert known.n_recordings == len(known.names) == 4 + N_SYNTHETIC
    for name, signal in zip(split.support_recordings, known.signals, strict=False):
        np.testing.assert_array_equal(signal, noise.signals[noise.names.index(name)])


def test_what_scores_is_held_out_white_and_pink(noise: NoiseSet, split: Split) -> None:
    scored = query_noises(noise, split)
    assert scored.names == (*split.query_recordings, "white", "pink")
    assert scored.n_recordings == 4
    np.testing.assert_array_equal(scored.signals[-2:], noise.signals[-2:])


def test_every_probe_comes_at_every_snr(noise: NoiseSet, split: Split) -> None:
    probes = query_probes(noise, split)
    names = {"white", "pink", "pool", "airplane_like", *split.query_recordings}
    assert {(probe.name, probe.snr_db) for probe in probes} == {(name, snr) for name in names for snr in SNRS_DB}
    pool = next(probe for probe in probes if probe.name == "pool")
    assert pool.noises.names == split.query_recordings
    for probe in probes:
        assert probe.noises.n_recordings == len(probe.noises.signals)
        assert not set(probe.noises.names) & set(split.support_recordings)


def test_an_unknown_noise_is_refused(noise: NoiseSet) -> None:
    with pytest.raises(DatasetError, match="none is named sawmill"):
        noise.of(("white", "sawmill"))
