"""Store of named models and controllers in immutable versions below one root, a folder or a URL.

    ROOT/NAME/VERSION.SHA256.safetensors    a version of a model: its tensors, and its manifest in the header
    ROOT/NAME/VERSION.SHA256.json           a version of a controller
    ROOT/aliases.json                       other names for either, or for one version

The digest in a file's name is that of its content, so that a listing identifies every version and reading verifies it.

Below the root is a read-only layer of models that come with the package. A name is a model's or a controller's, and
means its newest sound version in the root, if there is one; else an alias of that name; else the package's newest. A
reference with a number means that version of that name and never an alias. Publishing continues the numbers of both
layers, so that such a reference always means the same version: the empty file VERSION.removed keeps the number of a
newest version that `ModelStore.remove` deleted.
"""

from __future__ import annotations

import builtins
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from model_store.checkpoint import Checkpoint, GoldenErrors, sha256
from model_store.controller import PublishedController
from model_store.errors import (
    CorruptCheckpoint,
    CorruptStore,
    InvalidName,
    ModelNotFound,
    PublishFailed,
    StoreUnreachable,
)
from model_store.manifest import MAX_VERSION, Published, Reference, check_name, is_name, parse_reference, version_of
from model_store.storage import FolderStorage, Storage, is_url, storage_at
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
# A number alone is the folder of a version that an older release published.
_FILE = re.compile(rf"([0-9]+)(?:\.([0-9a-f]{{64}})\.({'|'.join(KINDS)}))?")
_REMOVED = ".removed"


@dataclass(frozen=True)
class ModelVersion:
    """One published version."""

    # Name and version identify it in the store.
    name: str
    version: int
    # ``sha256:...`` of its file; empty if an older release published it.
    digest: str
    # Whether it came with the package.
    is_bundled: bool = False
    # A key of KINDS.
    suffix: str = Checkpoint.SUFFIX

    @property
    def reference(self) -> str:
        """Return ``name@version``."""
        return f"{self.name}@{self.version}"

    @property
    def file(self) -> str:
        """Return its file relative to the root."""
        ending = f".{self.digest.removeprefix('sha256:')}.{self.suffix}" if self.digest else ""
        return f"{self.name}/{self.version}{ending}"

    def __str__(self) -> str:
        return self.reference


class ModelStore:
    """Publishes, finds and loads models below a root; safe for any number of processes."""

    def __init__(self, root: Path | str = DEFAULT_ROOT, include_bundled: bool = True) -> None:
        """Open a store; nothing is read or created yet.

        Parameters
        ----------
        root
            Folder, created by the first publication or alias, or a URL for which fsspec has a driver.
        include_bundled
            Whether the package's models are included.
        """
        self.root = root if is_url(root) else Path(root)
        self._root = storage_at(root)
        self._bundled: Storage | None = FolderStorage(BUNDLED_ROOT) if include_bundled else None
        self._manifests: dict[str, Published] = {}  # sound versions by digest; immutable

    @property
    def storage(self) -> Storage:
        """Return the root's storage."""
        return self._root

    # ----- publishing -----------------------------------------------------------------------------------------

    def publish(self, name: str, content: Content, created: datetime | None = None) -> ModelVersion:
        """Add a checkpoint or a controller as the next version of a name, all of it or nothing.

        The file is loaded before it is written, so that nothing is published that `load` would refuse.

        Parameters
        ----------
        name
            Name of a model, or of a controller; not an alias.
        content
            A copy gets the manifest's fields that the store fills in.
        created
            An aware time; None for now.

        Raises
        ------
        InvalidName
            The name is malformed, an alias, or that of the other kind.
        CorruptCheckpoint
            The content would not load.
        GoldenMismatch
            The checkpoint does not design its golden case.
        PublishFailed
            The manifest is not JSON, or the disk refuses. The store is unchanged.
        """
        check_name(name)
        if name in self._read_aliases():
            raise InvalidName(f"model name: {name!r} is an alias; choose a name that is free")
        if any(item.suffix != content.SUFFIX for item in self._all_versions(name)):
            raise InvalidName(f"model name: {name!r} is a model's, or a controller's; choose a name that is free")
        stamp = created or datetime.now(UTC)
        loaded = KINDS[content.SUFFIX].from_bytes(content.to_bytes(name, 1, stamp), name)
        _check_golden(loaded)
        try:
            with self._root.locked():
                while True:
                    version = self._next_version(name)
                    data = content.to_bytes(name, version, stamp)
                    made = ModelVersion(name, version, sha256(data), suffix=content.SUFFIX)
                    self._root.write(made.file, data)
                    # Without a lock another publisher may have taken the number: the lower digest keeps it.
                    if all(item.digest >= made.digest for item in self.versions(name) if item.version == version):
                        return made
                    self._root.remove(made.file)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise PublishFailed(f"{name}: not published ({reason}); the store is as it was") from error

    def remove(self, version: ModelVersion, heir: ModelVersion | None = None) -> None:
        """Delete a version of the root.

        Parameters
        ----------
        version
            What to delete.
        heir
            The version that its aliases stand for from now on.

        Raises
        ------
        InvalidName
            An alias stands for it, and there is no heir. Nothing is deleted.
        """
        with self._root.locked():
            aliases = self._read_aliases()
            standing = [alias for alias, target in aliases.items() if self._stands_for(target, version)]
            if standing and heir is None:
                raise InvalidName(
                    f"alias {standing[0]}: it stands for {version}; let it stand for another model first"
                )
            if standing:
                self._write_aliases(aliases | dict.fromkeys(standing, str(heir)))
            if version == self.versions(version.name)[-1]:
                self._root.write(f"{version.name}/{version.version}{_REMOVED}", b"")
            self._root.remove(version.file)

    def _stands_for(self, target: str, version: ModelVersion) -> bool:
        try:
            return self._find(parse_reference(target)) == version
        except ModelNotFound:
            return False

    def _all_versions(self, name: str) -> builtins.list[ModelVersion]:
        """List a name's versions in both layers."""
        return [item for bundled in (False, True) for item in self.versions(name, bundled)]

    def _next_version(self, name: str) -> int:
        removed = (version_of(file.removesuffix(_REMOVED)) for file in self._root.files(name) if _REMOVED in file)
        version = max([0, *filter(None, removed), *(item.version for item in self._all_versions(name))]) + 1
        if version > MAX_VERSION:
            raise PublishFailed(
                f"{name}: version {MAX_VERSION} is published, the last there can be; use another name"
            )
        return version

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
        found = self._resolved(parse_reference(reference))
        if suffix not in (None, found.suffix):
            here, there = ("controller", "model")[:: 1 if suffix == Checkpoint.SUFFIX else -1]
            raise ModelNotFound(f"{there}: {found} is a {here}; name it in `{here}`")
        return found

    def _resolved(self, wanted: Reference) -> ModelVersion:
        # A model of the root is found without reading the aliases, which may be damaged.
        if wanted.version is not None or self.versions(wanted.name):
            return self._find(wanted)
        target = self._read_aliases().get(wanted.name)
        if target is None:
            return self._find(wanted)
        try:
            return self._find(parse_reference(target))
        except ModelNotFound as error:
            raise ModelNotFound(f"alias {wanted.name} stands for {target}: {error}") from error

    def manifest(self, reference: str) -> Published:
        """Read the manifest of a reference, its digest checked; errors as `load`."""
        version = self.resolve(reference, None)
        return self._manifest(version)

    def _manifest(self, version: ModelVersion) -> Published:
        found = self._manifests.get(version.digest)
        if found is None:
            found = self._manifests[version.digest] = self._content(version).manifest
        return found

    def forget(self) -> None:
        """Read all manifests again when they are needed: a file may have been damaged since."""
        self._manifests.clear()

    def load(self, reference: str) -> Checkpoint:
        """Read a version and check everything that can be checked without running it.

        The golden case is left to the user of the model, with the device and precision that serve it
        (`Checkpoint.golden.check`). Errors are those of `resolve`, and:

        Raises
        ------
        CorruptCheckpoint
            The file is damaged; the message names it, its state and the expected one.
        """
        found = self._content(self.resolve(reference))
        assert isinstance(found, Checkpoint)
        return found

    def controller(self, reference: str) -> PublishedController:
        """Read a published controller; errors as `load`."""
        found = self._content(self.resolve(reference, PublishedController.SUFFIX))
        assert isinstance(found, PublishedController)
        return found

    def _content(self, version: ModelVersion) -> Content:
        content = KINDS[version.suffix].from_bytes(self._read(version), version.file)
        stated = content.manifest.name, content.manifest.version
        if stated != (version.name, version.version):
            raise CorruptCheckpoint(version.file, f"the manifest of {stated[0]}@{stated[1]}", f"that of {version}")
        return content

    def verify(self, reference: str) -> GoldenErrors | None:
        """Read a version, and design the golden case of a model on a CPU; errors as `load`, and GoldenMismatch."""
        return _check_golden(self._content(self.resolve(reference, None)))

    def list(self, suffix: str = Checkpoint.SUFFIX) -> list[ModelVersion]:
        """List the sound versions of models, or of another kind, by name, ascending; `broken` has the others."""
        return [item for item in self._all_layers() if item.suffix == suffix and self._fault(item) is None]

    def is_bundled(self, name: str) -> bool:
        """Return whether the package has a model of this name."""
        return bool(self.versions(name, bundled=True))

    def fault_after(self, version: ModelVersion) -> str | None:
        """Describe the fault of the newest version of a name, if it is not this one."""
        newest = self.versions(version.name, version.is_bundled)[-1:]
        return self._fault(newest[0]) if newest and newest[0] != version else None

    def versions(self, name: str, bundled: bool = False) -> builtins.list[ModelVersion]:
        """List a name's versions in the root, or those of the package, ascending, sound or not.

        Of two with one number, the lower digest holds it.
        """
        storage = self._bundled if bundled else self._root
        if storage is None:
            return []
        found: dict[int, ModelVersion] = {}
        for file in sorted(storage.files(name), reverse=True):
            matched = _FILE.fullmatch(file)
            version = version_of(matched[1]) if matched else None
            if matched and version is not None and (matched[2] or version not in found):
                digest = f"sha256:{matched[2]}" if matched[2] else ""
                found[version] = ModelVersion(name, version, digest, bundled, matched[3] or Checkpoint.SUFFIX)
        return sorted(found.values(), key=lambda item: item.version)

    def is_removed(self, version: ModelVersion) -> bool:
        """Return whether a version was deleted; a root without folders is taken for a volume that is not mounted."""
        return version not in self.versions(version.name, version.is_bundled) and bool(self._root.folders())

    def broken(self) -> dict[str, str]:
        """List faults by reference; of the aliases' file as ``aliases.json``, of the root as ``store``."""
        faults = {}
        if isinstance(self.root, Path) and os.path.lexists(self.root) and not self.root.is_dir():
            faults["store"] = "store: this is not a folder; no model can be published into it"
        try:
            for name in filter(is_name, self._root.folders()):
                try:
                    self._root.files(name)
                except CorruptStore as error:
                    faults[name] = str(error)
            faults |= {layer.reference: fault for layer in self._all_layers() if (fault := self._fault(layer))}
            self._read_aliases()
        except (CorruptStore, StoreUnreachable) as error:
            faults[ALIASES_FILE if isinstance(error, CorruptStore) else "store"] = str(error)
        return faults

    def _fault(self, version: ModelVersion) -> str | None:
        """Describe the fault of a version's file, or return None."""
        try:
            self._manifest(version)
        except CorruptStore as error:
            return str(error)
        return None

    def _all_layers(self) -> builtins.list[ModelVersion]:
        """List all versions by name, ascending; those of the root hide the package's."""
        found: dict[str, ModelVersion] = {}
        for bundled, storage in ((True, self._bundled), (False, self._root)):
            for name in filter(is_name, storage.folders() if storage else []):
                try:
                    found |= {version.reference: version for version in self.versions(name, bundled)}
                except CorruptStore:  # reported by `broken`
                    continue
        return sorted(found.values(), key=lambda item: (item.name, item.version))

    def _find(self, wanted: Reference) -> ModelVersion:
        """Find the version of a model's name, never of an alias; without a number the newest sound one, if any."""
        for bundled in (False, True):
            versions = {version.version: version for version in self.versions(wanted.name, bundled)}
            if wanted.version in versions:
                return versions[wanted.version]
            if versions and wanted.version is None:
                newest, *older = reversed(versions.values())
                fault = self._fault(newest)
                sound = newest if fault is None else next((item for item in older if not self._fault(item)), newest)
                if sound != newest:
                    logger.error("%s; %s is used in its place", fault, sound)
                return sound
        known = ", ".join(sorted({layer.name for layer in self._all_layers()})) or "none"
        raise ModelNotFound(f"model: there is no {str(wanted)!r}; there are versions of: {known}")

    def _read(self, version: ModelVersion) -> bytes:
        storage = self._bundled if version.is_bundled and self._bundled is not None else self._root
        try:
            data = storage.read(version.file)
        except CorruptCheckpoint:
            raise
        except CorruptStore as error:
            raise CorruptCheckpoint(version.file, error.found, error.expected) from error
        if data is None:
            raise CorruptCheckpoint(version.file, "nothing", "a file")
        if (found := sha256(data)) != version.digest:
            raise CorruptCheckpoint(version.file, f"{found} ({len(data)} bytes)", version.digest)
        return data

    # ----- aliases --------------------------------------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        """Return aliases and their references; empty if their file cannot be read (see `broken`)."""
        try:
            return self._read_aliases()
        except (CorruptStore, StoreUnreachable):
            return {}

    def _read_aliases(self) -> dict[str, str]:
        """Read the aliases; CorruptStore or StoreUnreachable if their file cannot be read."""
        data = self._root.read(ALIASES_FILE)
        if data is None:
            return {}
        try:
            found = json.loads(data)
            return {check_name(alias): str(parse_reference(target)) for alias, target in found.items()}
        except (ValueError, AttributeError, InvalidName, RecursionError) as error:
            raise CorruptStore(
                ALIASES_FILE, "no table of aliases", "names with the references they stand for"
            ) from error

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
        with self._writing_aliases(alias) as aliases:
            if self.versions(alias):
                raise InvalidName(f"alias: {alias!r} is a model's name; choose a name that is free")
            if target.version is None and target.name in aliases:
                raise InvalidName(f"alias target: {reference!r} is itself an alias; give a model or a version")
            resolved = self._find(target)
            self._content(resolved)  # raises for a damaged version
            aliases[alias] = str(target)
        return resolved

    def remove_alias(self, alias: str) -> None:
        """Remove an alias; ModelNotFound if there is none of that name."""
        with self._writing_aliases(alias) as aliases:
            if alias not in aliases:
                known = ", ".join(sorted(aliases)) or "none"
                raise ModelNotFound(f"alias: there is no {alias!r}; there are: {known}")
            del aliases[alias]

    @contextmanager
    def _writing_aliases(self, alias: str) -> Iterator[dict[str, str]]:
        """Yield the table for one process at a time, and write it back unless the body raises."""
        try:
            with self._root.locked():
                aliases = self._read_aliases()
                yield aliases
                self._write_aliases(aliases)
        except OSError as error:
            raise PublishFailed(f"alias {alias}: not changed ({error.strerror})") from error

    def _write_aliases(self, aliases: dict[str, str]) -> None:
        self._root.write(ALIASES_FILE, (json.dumps(aliases, indent=2, sort_keys=True) + "\n").encode())


def existing_store(root: Path | str) -> ModelStore:
    """Open a store that was named to be read; ModelNotFound if it is a folder that does not exist."""
    store = ModelStore(root)
    if isinstance(store.root, Path) and store.root != _OWN_ROOT and not os.path.lexists(store.root):
        raise ModelNotFound(f"store: there is no folder {store.root}; create it, or name another one")
    return store


def _check_golden(content: Content) -> GoldenErrors | None:
    """Design the golden case of a model, which a controller has none of, on a CPU; raises GoldenMismatch."""
    if not isinstance(content, Checkpoint):
        return None
    return content.golden.check(Model.on("cpu", content.parameters))
