"""Devices that learn themselves: what they know at each stage, and that they forget."""

from pathlib import Path

import numpy as np
import pytest

from measurement.device import ListenerEar
from model_store.devices import FILE, Devices
from model_store.errors import InvalidName, ModelNotFound
from model_store.store import ModelStore
from synthesis.conventions import N_BINS
from synthesis.plausibility import find_implausible
from tests.data.six_ears import FILE as SIX_EARS


def ears() -> list[ListenerEar]:
    with np.load(SIX_EARS) as stored:
        data = {number: stored[number] for number in ("001", "013", "023")}
    coherence = np.full(N_BINS, 0.99, np.float32)
    return [
        ListenerEar(number, paths[:, 4 + side].copy(), paths[:2048, side].copy(), coherence)
        for number, paths in data.items()
        for side in (0, 1)
    ]


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    return Devices(ModelStore(tmp_path))


def test_two_listeners_judge_a_third(devices: Devices) -> None:
    assert devices.add("mine", ears()[:2]).model is None
    device = devices.add("mine", ears()[:4])  # the first two again
    assert (device.listeners, device.n_ears) == (("001", "013"), 4)
    assert device.model is not None
    checkpoint = devices.store.load("mine")
    assert checkpoint.manifest.device == "mine"
    assert checkpoint.parameters.path_prior is None
    third = ears()[4]
    support = checkpoint.parameters.support
    assert not find_implausible(support, third.primary, third.secondary)
    for name, factor in (("implausible_polarity", -1), ("implausible_level", 10)):
        found = find_implausible(support, third.primary, np.float32(factor) * third.secondary)
        assert name in [item.code for item in found]


def test_ear_measured_again_counts_once(devices: Devices) -> None:
    ear = ears()[0]
    noise = np.random.default_rng(0).standard_normal(len(ear.secondary)) * np.linalg.norm(ear.secondary)
    noise *= 10 ** (-30 / 20) / np.sqrt(len(noise))
    again = ListenerEar("other", ear.primary, (ear.secondary + noise).astype(np.float32), ear.coherence)
    assert devices.add("mine", [ear, again, ears()[1]]).n_ears == 2


def test_five_listeners_have_a_prior(devices: Devices) -> None:
    renamed = [ListenerEar(str(n), ear.primary, ear.secondary, ear.coherence) for n, ear in enumerate(ears())]
    devices.add("mine", renamed)
    prior = devices.store.load("mine").parameters.path_prior
    assert prior.n_ears == 6
    # Filters are those of `generic` until a generator is trained.
    weights = (devices.store.load(name).parameters.weights for name in ("mine", "generic"))
    assert all(map(np.array_equal, *(item.values() for item in weights)))


def test_version_of_an_alias_is_kept(devices: Devices) -> None:
    """A service that runs with the alias could not start again without it."""
    devices.add("mine", ears()[:4])
    devices.store.set_alias("live", "mine@1")
    for _ in range(3):
        devices.publish("mine")
    assert [item.version for item in devices.store.versions("mine")] == [1, 3, 4]
    assert devices.store.load("live").manifest.device == "mine"


def test_removed_listener_leaves_nothing(devices: Devices, tmp_path: Path) -> None:
    devices.add("mine", ears())
    devices.remove("mine", "023")
    assert devices.device("mine").listeners == ("001", "013")
    assert devices.store.manifest("mine").support == ("001", "013")
    assert len(devices.store.versions("mine")) == 1
    devices.remove("mine")
    assert not (tmp_path / "mine" / FILE).exists()
    with pytest.raises(ModelNotFound):
        devices.device("mine")


def test_device_takes_no_bundled_name(devices: Devices) -> None:
    with pytest.raises(InvalidName, match="of the package"):
        devices.add("generic", ears()[:2])
