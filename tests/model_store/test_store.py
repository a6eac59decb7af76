import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from random import Random

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from model_store import store as store_module
from model_store.checkpoint import Checkpoint
from model_store.errors import CorruptStore, GoldenMismatch, InvalidName, ModelNotFound, PublishFailed
from model_store.storage import PARTIAL
from model_store.store import ModelStore
from tests.model_store import cases

ROOT = Path(__file__).parents[2]


def assert_whole(store: ModelStore, *references: str) -> None:
    """Exactly these versions, every one loads, and nothing unfinished lies about."""
    assert [str(item) for item in store.list()] == list(references)
    assert store.broken() == {}
    for reference in references:
        store.load(reference)
    assert PARTIAL not in os.listdir(store.root)


# ----- publish and load -------------------------------------------------------------------------------------


def test_manifest_is_completed_and_digested(store: ModelStore, checkpoint: Checkpoint) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    version = store.publish("ears", checkpoint)
    manifest = store.manifest("ears")
    assert (manifest.name, manifest.version, version.version) == ("ears", 2, 2)
    assert before <= manifest.created <= datetime.now(UTC)
    assert manifest.generator == cases.SMALL.to_dict()
    assert manifest.n_parameters == checkpoint.parameters.config.n_parameters
    assert version.digest == store.resolve("ears").digest
    assert version.digest == f"sha256:{hashlib.sha256((store.root / version.file).read_bytes()).hexdigest()}"
    assert checkpoint.manifest.version == 0
    expected, found = cases.arrays(checkpoint), cases.arrays(store.load("ears"))
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_versions_ascend_and_old_ones_stay(store: ModelStore, checkpoint: Checkpoint, file: Path) -> None:
    before = file.read_bytes()
    assert [store.publish("ears", checkpoint).version for _ in range(10)] == list(range(2, 12))
    assert file.read_bytes() == before
    assert store.resolve("ears").version == 11  # by number, not by letter
    assert store.resolve("ears@9").version == 9


@pytest.mark.parametrize("reference", ["none", "ears@2", "none@1"])
def test_unknown_model_is_named_beside_known(store: ModelStore, reference: str) -> None:
    for ask in (store.resolve, store.load, store.manifest, store.verify):
        with pytest.raises(ModelNotFound, match=f"there is no '{reference}'; there are versions of: ears"):
            ask(reference)


def test_damaged_newest_version_hides_no_other(
    store: ModelStore, checkpoint: Checkpoint, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = store.root / store.publish("ears", checkpoint).file
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:-1])
    for ask in (store.load, store.manifest):
        with pytest.raises(CorruptStore, match=r"ears/2\.[0-9a-f]{64}\.safetensors: found sha256:"):
            ask("ears@2")
    assert store.load("ears").manifest == store.manifest("ears") == store.manifest("ears@1")
    assert "ears@1 is used in its place" in caplog.text
    assert [str(item) for item in store.list()] == ["ears@1"]
    assert list(store.broken()) == ["ears@2"]
    assert store.publish("ears", checkpoint).version == 3
    store.load("ears")


def test_flipped_bit_is_noticed(store: ModelStore, file: Path) -> None:
    sound, draw = file.read_bytes(), Random(0)
    for place in (0, 8, len(sound) - 1, *(draw.randrange(len(sound)) for _ in range(9))):
        flipped = bytearray(sound)
        flipped[place] ^= 1 << draw.randrange(8)
        file.write_bytes(flipped)
        with pytest.raises(CorruptStore, match=r"found .*expected "):
            store.load("ears@1")


# ----- what is refused --------------------------------------------------------------------------------------


def test_nothing_is_published_that_would_not_load(store: ModelStore, checkpoint: Checkpoint) -> None:
    other = replace(checkpoint, parameters=cases.parameters(2))
    with pytest.raises(GoldenMismatch, match="relative error"):
        store.publish("ears", other)
    rate = checkpoint.manifest.model_copy(update={"training": {"rate": float("nan")}})
    with pytest.raises(PublishFailed, match=r"not published .*finite number"):
        store.publish("ears", replace(checkpoint, manifest=rate))
    half = replace(checkpoint.parameters, reference_psd=checkpoint.parameters.reference_psd[::2])
    with pytest.raises(PublishFailed, match=r"reference_psd: of shape \[8193\]"):
        store.publish("ears", replace(checkpoint, parameters=half))
    assert_whole(store, "ears@1")


# ----- faults of the disk and of processes ------------------------------------------------------------------


def test_publishers_at_once_get_numbers(store: ModelStore) -> None:
    code = """import sys; from model_store.store import ModelStore
store = ModelStore(sys.argv[1], False); checkpoint = store.load('ears@1'); print(flush=True)
for _ in range(3): store.publish('ears', checkpoint)"""
    checkpoint = store.load("ears@1")
    command = [sys.executable, "-c", code, str(store.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        for _ in range(3):
            store.publish("ears", checkpoint)
        assert process.wait(240) == 0
    assert_whole(store, *(f"ears@{n}" for n in range(1, 8)))


def test_copy_behind_url_is_read_and_aliased(store: ModelStore, checkpoint: Checkpoint, tmp_path: Path) -> None:
    """As a bucket to which two folders were copied: of two with one number, the lower digest holds it."""
    url = f"memory://{tmp_path.name}/models"
    files = MemoryFileSystem()
    for path in store.root.rglob("*.safetensors"):
        files.pipe_file(f"/{tmp_path.name}/models/ears/{path.name}", path.read_bytes())
    remote = ModelStore(url, include_bundled=False)
    assert remote.load("ears").manifest == store.load("ears").manifest
    assert str(remote.set_alias("live", "ears@1")) == str(remote.resolve("live")) == "ears@1"
    with pytest.raises(PublishFailed, match="object storage has no lock"):
        remote.publish("ears", checkpoint)
    files.pipe_file(f"/{tmp_path.name}/models/ears/1.{'0' * 64}.safetensors", b"")
    assert list(ModelStore(url, include_bundled=False).broken()) == ["ears@1"]


def test_name_is_of_model_or_controller(store: ModelStore, checkpoint: Checkpoint, tmp_path: Path) -> None:
    controller = cases.controller()
    assert store.publish("everybody", controller).file.endswith(".json")
    with pytest.raises(ModelNotFound, match="is a controller"):
        store.load("everybody")
    with pytest.raises(ModelNotFound, match="is a model"):
        store.controller("ears")
    for name, content in (("ears", controller), ("everybody", checkpoint)):
        with pytest.raises(InvalidName, match="choose a free one"):
            store.publish(name, content)
    shutil.copytree(store.root, tmp_path / "copy")
    found = ModelStore(tmp_path / "copy", include_bundled=False).controller("everybody@1")
    assert (found.sos, found.latency_us) == (controller.sos, 10)


def test_unusable_controller_is_not_published() -> None:
    for change, found in (({"sos": ((0.1, 0, 0, 1, -1.1, 0),)}, "unit circle"), ({"latency_us": 1e6}, "latency")):
        with pytest.raises(ValueError, match=found):
            cases.controller(**change)


# ----- aliases ----------------------------------------------------------------------------------------------


def test_alias_follows_name_or_stays_with_version(store: ModelStore, checkpoint: Checkpoint) -> None:
    assert store.set_alias("best", "ears").version == 1
    store.set_alias("first", "ears@1")
    store.publish("ears", checkpoint)
    assert store.aliases() == {"best": "ears", "first": "ears@1"}
    assert store.resolve("best") == store.resolve("ears@2")
    assert store.load("first").manifest.version == 1
    store.set_alias("best", "ears@1")
    assert store.resolve("best").version == 1
    store.remove_alias("best")
    with pytest.raises(ModelNotFound, match="'best'"):
        store.resolve("best")


def test_names_and_aliases_do_not_shadow_each_other(store: ModelStore, checkpoint: Checkpoint) -> None:
    store.set_alias("best", "ears")
    with pytest.raises(InvalidName, match="'ears' is a model's name"):
        store.set_alias("ears", "ears@1")
    with pytest.raises(InvalidName, match="itself an alias"):
        store.set_alias("top", "best")
    with pytest.raises(InvalidName, match="'best' is an alias"):
        store.publish("best", checkpoint)
    with pytest.raises(ModelNotFound, match="there is no 'best@1'"):
        store.resolve("best@1")
    with pytest.raises(ModelNotFound, match="there is no 'top'; there are: best"):
        store.remove_alias("top")
    for alias in ("Top", "../top", "a@1"):
        with pytest.raises(InvalidName):
            store.set_alias(alias, "ears")
    assert store.aliases() == {"best": "ears"}


@pytest.mark.parametrize("content", [b"", b'{"best": 1}', b'{"../best": "ears"}', b"[" * 100_000], ids=range(4))
def test_damaged_aliases_are_rejected_and_hide_no_model(store: ModelStore, content: bytes) -> None:
    (store.root / "aliases.json").write_bytes(content)
    with pytest.raises(CorruptStore, match=r"aliases\.json: found no table of aliases"):
        store.resolve("best")
    with pytest.raises(CorruptStore):
        store.set_alias("best", "ears")
    store.load("ears")
    assert store.aliases() == {}
    assert list(store.broken()) == ["aliases.json"]
    assert [str(item) for item in store.list()] == ["ears@1"]


# ----- the bundled layer ------------------------------------------------------------------------------------


def test_stored_model_precedes_bundled_one(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not exist yet, above a package that comes with `default@1`."""
    monkeypatch.setattr(store_module, "BUNDLED_ROOT", tmp_path / "bundled")
    bundled, layered = ModelStore(tmp_path / "bundled", include_bundled=False), ModelStore(tmp_path / "store")
    bundled.publish("default", checkpoint)
    newest = layered.publish("default", checkpoint)
    assert (newest.version, newest.is_bundled) == (2, False)
    assert layered.resolve("default@1").is_bundled
    assert [bundled.publish("default", checkpoint).version for _ in range(2)] == [2, 3]
    assert layered.resolve("default") == layered.resolve("default@2") == newest
    assert layered.resolve("default@3").is_bundled
    assert [str(item) for item in layered.list()] == ["default@1", "default@2", "default@3"]


def test_whatever_package_brings_is_sound(tmp_path: Path) -> None:
    """Every bundled model passes every check, and says so of data that may be passed on."""
    store = ModelStore(tmp_path / "store")
    assert store.broken() == {}
    for version in store.list():
        assert version.is_bundled
        store.verify(str(version))
    on_disk = Path(str(files("model_store"))) / "bundled"
    assert on_disk == store_module.BUNDLED_ROOT
