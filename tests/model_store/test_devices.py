"""Devices that learn themselves: what they know at each stage, and that they forget."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from model_store.devices import FILE, Devices
from model_store.errors import InvalidName, ModelNotFound, PublishFailed
from model_store.store import ModelStore
from prime_anc.measure.device import ListenerEar, learn_device
from prime_anc.method.conventions import N_BINS
from prime_anc.method.support.findings import find_implausible
from tests.data.six_ears import FILE as SIX_EARS
from tests.model_store import cases


def ears() -> list[ListenerEar]:
    with np.load(SIX_EARS) as stored:
        data = {number: stored[number] for number in ("001", "013", "023")}
    coherence = np.full(N_BINS, 0.99, np.float32)
    return [
        ListenerEar(number, paths[:, 4 + side].copy(), paths[:2048, side].copy(), coherence)
        for number, paths in data.items()
        for side in (0, 1)
    ]


def assert_generic(devices: Devices, name: str) -> None:
    """A model has the weights of the generic one."""
    weights = (devices.store.load(name).parameters.weights for name in (name, "generic"))
    assert all(map(np.array_equal, *(item.values() for item in weights)))


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
    """Filters are those of `generic` until a generator is trained, and every version stays."""
    renamed = [replace(ear, listener=str(n)) for n, ear in enumerate(ears())]
    for n in (3, 6):
        devices.add("mine", renamed[:n])
    assert devices.store.load("mine").parameters.path_prior.n_ears == 6
    assert_generic(devices, "mine")
    assert [item.version for item in devices.store.versions("mine")] == [1, 2]


def test_removed_listener_leaves_nothing(devices: Devices) -> None:
    devices.add("mine", ears()[:4])
    devices.add("mine", ears())
    devices.publish("mine", cases.checkpoint())  # as if trained on all
    devices.store.set_alias("live", "mine@3")
    assert str(devices.remove("mine", "023")) == "mine@4"
    assert devices.device("mine").listeners == ("001", "013")
    assert [item.version for item in devices.store.versions("mine")] == [1, 4]
    assert devices.store.aliases() == {"live": "mine@4"}
    assert_generic(devices, "live")


def test_removal_leaves_no_alias_and_number_behind(devices: Devices, tmp_path: Path) -> None:
    devices.add("mine", ears()[:4])
    devices.publish("mine")
    for target in ("mine", "mine@1"):
        devices.store.set_alias("live", target)
        for listener in ("001", None):  # one listener is too few for a model
            with pytest.raises(InvalidName, match=f"live: it stands for {target}"):
                devices.remove("mine", listener)
        assert devices.store.load("live").manifest.support == ("001", "013")
    devices.store.remove_alias("live")
    devices.remove("mine")
    assert not (tmp_path / "mine" / FILE).exists()
    assert not devices.store.versions("mine")
    with pytest.raises(ModelNotFound):
        devices.device("mine")
    assert str(devices.add("mine", ears()).model) == "mine@3"


def test_device_takes_no_other_name(devices: Devices) -> None:
    devices.store.set_alias("live", "generic")
    for name in ("generic", "live", "Bad Name"):
        with pytest.raises(InvalidName):
            devices.add(name, ears()[:2])


def test_removal_waits_for_addition(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the addition publishes the listener after the removal."""
    devices.add("mine", ears()[:5])
    learning, go = Event(), Event()

    def slowly(*arguments: object) -> object:
        learning.set()
        go.wait(10)
        return learn_device(*arguments)

    monkeypatch.setattr("model_store.devices.learn_device", slowly)
    with ThreadPoolExecutor() as pool:
        adding = pool.submit(devices.add, "mine", ears())
        learning.wait(60)
        removing = pool.submit(Devices(ModelStore(devices.store.root)).remove, "mine", "023")
        time.sleep(0.2)
        assert not removing.done()
        go.set()
        adding.result(120)
        removing.result(120)
    versions = devices.store.versions("mine")
    assert versions
    assert not [item for item in versions if "023" in devices.store.manifest(str(item)).support]
    assert devices.device("mine").listeners == ("001", "013")


def test_removed_listener_survives_in_no_training(devices: Devices) -> None:
    devices.add("mine", ears())
    trained_on = devices.ears("mine")
    devices.remove("mine", "023")
    with pytest.raises(PublishFailed, match="train again"):
        devices.publish("mine", cases.checkpoint(), trained_on)
    assert devices.publish("mine", cases.checkpoint(), trained_on[:4]).version == 3


def test_damaged_model_gives_way_to_one_before(devices: Devices) -> None:
    devices.add("mine", ears()[:4])
    devices.publish("mine")
    newest = devices.store.root / devices.store.versions("mine")[-1].file
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:3000])
    again = Devices(ModelStore(devices.store.root))
    assert str(again.device("mine").model) == "mine@1"
    with pytest.raises(PublishFailed, match="nothing was erased"):  # its listeners are unknown
        again.remove("mine", "001")
    assert str(again.add("mine", ears()).model) == "mine@3"


def test_erased_listener_returns_by_no_publication(devices: Devices) -> None:
    """Of what a program loaded before: a version, a copy under another name, and a controller of theirs."""
    devices.add("mine", ears())
    checkpoint, store = devices.store.load("mine"), devices.store
    controller = cases.controller(dataset="device", device="mine", support=("001", "023"))
    for name, content in (("copy", checkpoint), ("everybody", controller)):
        store.publish(name, content)
    devices.remove("mine", "023")
    assert [str(item) for item in store.all_versions() if not item.is_bundled] == ["mine@2"]
    for name, content in (("mine", checkpoint), ("copy", checkpoint), ("everybody", controller)):
        with pytest.raises(PublishFailed, match="lacks listeners"):
            store.publish(name, content)
    devices.remove("mine")
    with pytest.raises(PublishFailed, match="lacks listeners"):
        store.publish("mine", checkpoint)


def test_interrupted_removal_lends_no_generator(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is repeated, and what was published in between is of no erased listener either."""
    devices.add("mine", ears())
    devices.publish("mine", cases.checkpoint(), ears())

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("model_store.devices.learn_device", fail)
        with pytest.raises(KeyboardInterrupt):
            devices.remove("mine", "023")
    devices.add("mine", [replace(ears()[4], listener="other")])
    assert_generic(devices, "mine")
    devices.remove("mine", "023")
    assert [str(item) for item in devices.store.versions("mine")] == ["mine@3", "mine@4"]


def test_copies_of_one_number_are_removed_together(devices: Devices) -> None:
    """Else the file with the higher digest would come to light."""
    devices.add("mine", ears())
    (file,) = (devices.store.root / "mine").glob("1.*")
    file.with_name(f"1.{'f' * 64}.safetensors").write_bytes(file.read_bytes())
    devices.remove("mine", "023")
    assert not [*(devices.store.root / "mine").glob("1.*.safetensors")]
