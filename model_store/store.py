"""Store of named models and controllers in immutable versions below one root, a folder or a URL.

    ROOT/NAME/VERSION.SHA256.safetensors    a version of a model: its tensors, and its manifest in the header
    ROOT/NAME/VERSION.SHA256.json           a version of a controller
    ROOT/NAME/VERSION.removed               keeps the number of a version that `ModelStore.remove` deleted
    ROOT/aliases.json                       other names for either, or for one version

The digest in a file's name is that of its content, so that a listing identifies every version and reading verifies it.

Below the root is a read-only layer of models that come with the package. A name is a model's or a controller's, and
means its newest sound version in the root, if there is one; else an alias of that name; else the package's newest. A
reference with a number means that version of that name and never an alias. Publishing continues the numbers of both
layers, so that such a reference always means the same version.
"""

from __future__ import annotations

import builtins
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from model_store.checkpoint import Checkpoint, sha256
from model_store.controller import PublishedController
from model_store.errors import CorruptStore, InvalidName, ModelNotFound, PublishFailed, StoreUnreachable
from model_store.listeners import refuse_erased
from model_store.manifest import VERSION, Published, Reference, check_name, is_name, parse_reference
from model_store.storage import Storage
from prime_anc.method.types import Model

_OWN_ROOT = Path(__file__).parent / "checkpoints"
# The service's setting is every command's default.
DEFAULT_ROOT: Path | str = os.environ.get("PRIME_STORE") or _OWN_ROOT
# Models that come with the package; the folder need not exist.
BUNDLED_ROOT = Path(str(files("model_store"))) / "bundled"

logger = logging.getLogger(__name__)

ALIASES_FILE = "aliases.json"
Content = Checkpoint | PublishedController
# Contents of files by suffix.
KINDS: dict[str, type[Checkpoint] | type[PublishedController]] = {
    kind.SUFFIX: kind for kind in (Checkpoint, PublishedController)
}
_FILE = re.compile(rf"({VERSION})\.([0-9a-f]{{64}})\.({'|'.join(KINDS)})")
_NUMBER = re.compile(rf"({VERSION})\..*")


@dataclass(frozen=True)
class ModelVersion:
    """One published version."""

    # Name and version identify it in the store.
    name: str
    version: int
    # ``sha256:...`` of its file.
    digest: str
    # Whether it came with the package.
    is_bundled: bool = False
    # A key of KINDS.
    suffix: str = Checkpoint.SUFFIX

    @property
    def file(self) -> str:
        """Return its file relative to the root."""
        return f"{self.name}/{self.version}.{self.digest.removeprefix('sha256:')}.{self.suffix}"

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class ModelStore:
    """Publishes, finds and loads models below a root; safe for any number of processes."""

    def __init__(self, root: Path | str = DEFAULT_ROOT, include_bundled: bool = True) -> None:
        """Open a store; nothing is read or created yet.

        Parameters
        ----------
        root
            Folder, created by the first publication or alias, or a URL for which fsspec has a driver. Behind a URL
            only aliases can be written: its files are copies of a folder's.
        include_bundled
            Whether the package's models are included.
        """
        # Files of the root.
        self.storage = Storage(root)
        self.root = Path(root) if self.storage.is_folder else root
        self._layers = {False: self.storage} | ({True: Storage(BUNDLED_ROOT)} if include_bundled else {})
        self._manifests: dict[ModelVersion, Published] = {}  # of sound versions

    # ----- publishing -----------------------------------------------------------------------------------------

    def publish(self, name: str, content: Content) -> ModelVersion:
        """Add a checkpoint or a controller as the next version of a name, all of it or nothing.

        What is written is loaded before, so that nothing is published that `load` would refuse.

        Parameters
        ----------
        name
            Name of a model, or of a controller; not an alias.
        content
            A copy gets the manifest's fields that the store fills in.

        Raises
        ------
        InvalidName
            The name is malformed, an alias, or that of the other kind, or its numbers are used up.
        GoldenMismatch
            The checkpoint does not design its golden case.
        PublishFailed
            The content cannot be written or would not load, a device lacks listeners that it was made of, another
            program holds the lock, the disk refuses, or the root is a URL.
        """
        check_name(name)
        with self.storage.locked():
            if name in self.read_aliases():
                raise InvalidName(f"model name: {name!r} is an alias; choose a name that is free")
            others = [*self.versions(name), *self.versions(name, bundled=True)]
            if any(item.suffix != content.SUFFIX for item in others):
                raise InvalidName(f"model name: {name!r} is of a model or a controller; choose a free one")
            refuse_erased(self.storage, content.manifest)
            numbers = [int(matched[1]) for file in self.storage.names(name) if (matched := _NUMBER.fullmatch(file))]
            number = 1 + max([0, *numbers, *(item.version for item in others)])
            parse_reference(f"{name}@{number}")
            try:
                data = content.to_bytes(name, number, datetime.now(UTC))
                _check_golden(content.from_bytes(data))
            except ValueError as error:
                raise PublishFailed(f"{name}: not published ({_on_a_line(error)})") from error
            version = ModelVersion(name, number, sha256(data), suffix=content.SUFFIX)
            self.storage.write(version.file, data)
            return version

    def remove(self, version: ModelVersion, heir: ModelVersion | None = None) -> None:
        """Delete a version of the root.

        Parameters
        ----------
        version
            What to delete.
        heir
            The version that aliases of its number stand for from now on.
        """
        with self.storage.locked():
            aliases = self.read_aliases()
            moved = [alias for alias, target in aliases.items() if target == str(version)]
            if heir and moved:
                self._write_aliases(aliases | dict.fromkeys(moved, str(heir)))
            self.storage.write(f"{version.name}/{version.version}.removed", b"")
            for file in self.storage.names(version.name):  # another of the same number would come to light
                if (matched := _FILE.fullmatch(file)) and int(matched[1]) == version.version:
                    self.storage.remove(f"{version.name}/{file}")

    # ----- finding --------------------------------------------------------------------------------------------

    def resolve(self, reference: str, suffix: str | None = Checkpoint.SUFFIX) -> ModelVersion:
        """Find the version of ``name``, the newest that is sound, of ``name@version`` or of an alias.

        Parameters
        ----------
        reference
            What to find.
        suffix
            Key of KINDS; None: of any kind.

        Raises
        ------
        InvalidName
            It is not a reference.
        ModelNotFound
            Nothing of the kind has that name.
        CorruptStore
            The listing is damaged.
        StoreUnreachable
            The storage does not answer.
        """
        wanted, target = parse_reference(reference), None
        # A model of the root is found without reading the aliases, which may be damaged.
        if wanted.version is None and not self.versions(wanted.name):
            target = self.read_aliases().get(wanted.name)
        try:
            version = self._find(parse_reference(target) if target else wanted)
        except ModelNotFound as error:
            raise ModelNotFound(f"alias {reference} for {target}: {error}" if target else str(error)) from error
        if suffix not in (None, version.suffix):
            kind = "model" if version.suffix == Checkpoint.SUFFIX else "controller"
            raise ModelNotFound(f"{reference}: {version} is a {kind}; name it in `{kind}`")
        return version

    def _find(self, wanted: Reference) -> ModelVersion:
        """Find the version of a model's name, never of an alias; without a number the newest sound one, if any."""
        for bundled in (False, True):
            versions = {item.version: item for item in self.versions(wanted.name, bundled)}
            if wanted.version in versions:
                return versions[wanted.version]
            if versions and wanted.version is None:
                newest = versions[max(versions)]
                sound = next((item for item in reversed(versions.values()) if self.fault(item) is None), newest)
                if sound != newest:
                    logger.error("%s; %s is used in its place", self.fault(newest), sound)
                return sound
        known = ", ".join(sorted({item.name for item in self.all_versions()})) or "none"
        raise ModelNotFound(f"model: there is no '{wanted}'; there are versions of: {known}")

    def versions(self, name: str, bundled: bool = False) -> builtins.list[ModelVersion]:
        """List a name's versions in the root, or those of the package, ascending, sound or not.

        Of two with one number, which only copying can bring about, the lower digest holds it.
        """
        by_number = {}
        for file in sorted(self._layers[bundled].names(name), reverse=True) if bundled in self._layers else ():
            if matched := _FILE.fullmatch(file):
                number = int(matched[1])
                by_number[number] = ModelVersion(name, number, f"sha256:{matched[2]}", bundled, matched[3])
        return [by_number[number] for number in sorted(by_number)]

    def all_versions(self, faults: dict[str, str] | None = None) -> builtins.list[ModelVersion]:
        """List all versions by name, ascending, sound or not; those of the root hide the package's.

        Folders that cannot be listed are left out, and named in `faults`.
        """
        versions: dict[str, ModelVersion] = {}
        for bundled in sorted(self._layers, reverse=True):
            for name in filter(is_name, self._layers[bundled].names()):
                try:
                    versions |= {str(item): item for item in self.versions(name, bundled)}
                except CorruptStore as error:
                    if faults is not None:
                        faults[name] = str(error)
        return sorted(versions.values(), key=lambda item: (item.name, item.version))

    def list(self, suffix: str = Checkpoint.SUFFIX) -> builtins.list[ModelVersion]:
        """List the sound versions of models, or of another kind, by name, ascending; `broken` has the others."""
        return [item for item in self.all_versions() if item.suffix == suffix and self.fault(item) is None]

    def broken(self) -> dict[str, str]:
        """List faults by reference; of the aliases' file as ``aliases.json``, of the root as ``store``."""
        if isinstance(self.root, Path) and os.path.lexists(self.root) and not self.root.is_dir():
            return {"store": "store: this is not a folder; no model can be published into it"}
        faults: dict[str, str] = {}
        try:
            faults |= {str(item): fault for item in self.all_versions(faults) if (fault := self.fault(item))}
            self.read_aliases()
        except (CorruptStore, StoreUnreachable) as error:
            faults[error.file if isinstance(error, CorruptStore) else "store"] = str(error)
        return faults

    def fault(self, version: ModelVersion) -> str | None:
        """Describe the fault of a version's file, or return None."""
        try:
            self._manifest(version)
        except CorruptStore as error:
            return str(error)
        return None

    def fault_after(self, version: ModelVersion) -> str | None:
        """Describe the fault of the newest version of a name, if it is not this one."""
        newest = self.versions(version.name, version.is_bundled)[-1:]
        return self.fault(newest[0]) if newest and newest[0] != version else None

    def is_removed(self, version: ModelVersion) -> bool:
        """Return whether a version was deleted; a root without folders is taken for a volume that is not mounted."""
        is_listed = version in self.versions(version.name, version.is_bundled)
        return not is_listed and any(map(is_name, self.storage.names()))

    # ----- reading --------------------------------------------------------------------------------------------

    def load(self, reference: str) -> Checkpoint:
        """Read a version and check everything that can be checked without running it.

        The golden case is left to the user of the model, with the device and precision that serve it
        (`Checkpoint.golden.check`). Errors are those of `resolve`, and:

        Raises
        ------
        CorruptStore
            The file is damaged; the message names it, its state and the expected one.
        """
        return self._content(self.resolve(reference))

    def controller(self, reference: str) -> PublishedController:
        """Read a published controller; errors as `load`."""
        return self._content(self.resolve(reference, PublishedController.SUFFIX))

    def manifest(self, reference: str) -> Published:
        """Read the manifest of a reference, its digest checked; errors as `load`."""
        return self._manifest(self.resolve(reference, None))

    def verify(self, reference: str) -> dict[str, float]:
        """Read a version, and design the golden case of a model on a CPU; errors as `load`, and GoldenMismatch."""
        return _check_golden(self._content(self.resolve(reference, None)))

    def forget(self) -> None:
        """Read all manifests again when they are needed: a file may have been damaged since."""
        self._manifests.clear()

    def _manifest(self, version: ModelVersion) -> Published:
        if version not in self._manifests:
            self._manifests[version] = self._content(version).manifest
        return self._manifests[version]

    def _content(self, version: ModelVersion) -> Any:
        """Read a version, of the type of its suffix."""
        data = self._layers[version.is_bundled].read(version.file)
        if data is None:
            raise CorruptStore(version.file, "nothing", "a file")
        if (digest := sha256(data)) != version.digest:
            raise CorruptStore(version.file, f"{digest} ({len(data)} bytes)", version.digest)
        try:
            content = KINDS[version.suffix].from_bytes(data)
            if (content.manifest.name, content.manifest.version) != (version.name, version.version):
                raise ValueError(f"the manifest of {content.manifest.name}@{content.manifest.version}")
        except ValueError as error:
            raise CorruptStore(version.file, _on_a_line(error), "a version that this release can read") from error
        return content

    # ----- aliases --------------------------------------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        """Return aliases and their references; empty if their file cannot be read (see `broken`)."""
        try:
            return self.read_aliases()
        except (CorruptStore, StoreUnreachable):
            return {}

    def read_aliases(self) -> dict[str, str]:
        """Return aliases and their references; CorruptStore or StoreUnreachable if their file cannot be read."""
        data = self.storage.read(ALIASES_FILE)
        if data is None:
            return {}
        try:
            aliases: dict[str, str] = json.loads(data)
            for alias, target in aliases.items():
                check_name(alias)
                parse_reference(target)
        except (ValueError, AttributeError, TypeError, InvalidName, RecursionError) as error:
            expected = "names with the references they stand for"
            raise CorruptStore(ALIASES_FILE, "no table of aliases", expected) from error
        return aliases

    def set_alias(self, alias: str, reference: str) -> ModelVersion:
        """Let an alias stand for ``name`` (always its newest version) or ``name@version``.

        An alias of the same name is replaced.

        Returns
        -------
        ModelVersion
            The version that it stands for now.

        Raises
        ------
        InvalidName
            `alias` is a model of the root, or `reference` is itself an alias.
        ModelNotFound
            Nothing has the name `reference`.
        CorruptStore
            The version is damaged.
        PublishFailed
            The disk refuses.
        """
        check_name(alias)
        target = parse_reference(reference)
        with self._changing_aliases() as aliases:
            if self.versions(alias):
                raise InvalidName(f"alias: {alias!r} is a model's name; choose a name that is free")
            if target.version is None and target.name in aliases:
                raise InvalidName(f"alias target: {reference!r} is itself an alias; give a model or a version")
            version = self._find(target)
            self._content(version)  # raises for a damaged version
            aliases[alias] = reference
        return version

    def remove_alias(self, alias: str) -> None:
        """Remove an alias; ModelNotFound if there is none of that name."""
        with self._changing_aliases() as aliases:
            if alias not in aliases:
                known = ", ".join(sorted(aliases)) or "none"
                raise ModelNotFound(f"alias: there is no {alias!r}; there are: {known}")
            del aliases[alias]

    @contextmanager
    def _changing_aliases(self) -> Iterator[dict[str, str]]:
        """Yield the table, in a folder for one writer at a time, and write it back unless the body raises."""
        with self.storage.locked() if self.storage.is_folder else nullcontext():
            aliases = self.read_aliases()
            yield aliases
            self._write_aliases(aliases)

    def _write_aliases(self, aliases: dict[str, str]) -> None:
        self.storage.write(ALIASES_FILE, (json.dumps(aliases, indent=2, sort_keys=True) + "\n").encode())


def existing_store(root: Path | str) -> ModelStore:
    """Open a store that was named to be read; ModelNotFound if it is a folder that does not exist."""
    store = ModelStore(root)
    if isinstance(store.root, Path) and store.root != _OWN_ROOT and not os.path.lexists(store.root):
        raise ModelNotFound(f"store: there is no folder {store.root}; create it, or name another one")
    return store


def _on_a_line(error: ValueError) -> str:
    return " ".join(str(error).split())[:300]


def _check_golden(content: Content) -> dict[str, float]:
    """Return the errors of a model's golden case on a CPU; raises GoldenMismatch. A controller has none."""
    return content.golden.check(Model.on("cpu", content.parameters)) if isinstance(content, Checkpoint) else {}
