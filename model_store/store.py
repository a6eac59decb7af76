"""The store: named models in immutable versions below one folder.

    ROOT/NAME/VERSION/          one version: manifest.json, manifest.sha256 and the tensor files
    ROOT/aliases.json           other names for a model or for one version of it

Below the root is a read-only layer, the models that come with the package. A name means its newest version in the
root, if the root has one; else an alias of that name; else the package's newest. A reference with a number means
that version of that model and never an alias. Publishing continues the numbers of both layers, so that a reference
always means the same version.

To delete a version, remove its folder; the number of a deleted newest version may be used again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from model_store.checkpoint import Checkpoint
from model_store.durable import partial_folder, replace_file, sweep, sync_folder, write_new
from model_store.errors import CorruptCheckpoint, CorruptStore, InvalidName, PublishFailed, UnknownModel
from model_store.golden import GoldenErrors
from model_store.manifest import Manifest, parse_json, sha256
from model_store.names import MAX_VERSION, Reference, check_name, parse_reference
from model_store.version_folder import (
    MANIFEST_DIGEST_FILE,
    MANIFEST_FILE,
    manifest_digest_line,
    names_in,
    read_manifest,
    read_plain_file,
    read_version,
    versions_in,
)
from synthesis.backends import create_backend

DEFAULT_ROOT = Path(__file__).parent / "checkpoints"
BUNDLED_ROOT = Path(str(files("model_store"))) / "bundled"
"""The models that come with the package; the folder need not exist."""

ALIASES_FILE = "aliases.json"


@dataclass(frozen=True)
class ModelVersion:
    """One published version.

    Attributes:
        name, version: its identity in the store.
        folder: where it lies.
        digest: ``sha256:...`` of its manifest, and so of everything in it.
        is_bundled: whether it came with the package.
    """

    name: str
    version: int
    folder: Path
    digest: str
    is_bundled: bool = False

    @property
    def reference(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"

    def __str__(self) -> str:
        return self.reference


class ModelStore:
    """Publishes, finds and loads models below `root`; safe for any number of processes at once."""

    def __init__(self, root: Path | str = DEFAULT_ROOT, include_bundled: bool = True) -> None:
        """root: created by the first publish or alias. It may itself be a symbolic link; below it none is followed.
        include_bundled: whether the package's own models are included.
        """
        self.root = Path(root)
        self._layers = (self.root, BUNDLED_ROOT) if include_bundled else (self.root,)

    # ----- publishing -----------------------------------------------------------------------------------------

    def publish(self, name: str, checkpoint: Checkpoint, created: datetime | None = None) -> ModelVersion:
        """Add `checkpoint` as the next version of `name`. All of it becomes visible at once, or none of it.

        The store's fields of its manifest (name, version, created, generator, n_parameters, files) are filled in
        a copy. created: an aware time; None for now.

        Raises InvalidName for a name that breaks the rule or is an alias; CorruptCheckpoint or GoldenMismatch
        for a checkpoint that would not load (NaN weights, wrong types, a golden case that it does not
        reproduce); PublishFailed where the manifest cannot be written as JSON or the disk refuses. The store is
        then as it was.
        """
        check_name(name)
        if name in self._read_aliases():
            raise InvalidName(f"model name: {name!r} is an alias; choose a name that is free")
        arrays = checkpoint.array_files()
        try:
            draft = _checked_manifest(name, checkpoint, arrays, created or datetime.now(UTC))
            return self._write(name, draft, arrays)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise PublishFailed(f"{name}: not published ({reason}); the store is as it was") from error

    def _write(self, name: str, draft: Manifest, arrays: dict[str, bytes]) -> ModelVersion:
        """Write into a partial folder, fsync all of it, rename it to the next free number."""
        _make_folder(self.root)
        sweep(self.root)
        with partial_folder(self.root) as partial:
            for file, data in arrays.items():
                write_new(partial / file, data)
            while True:
                version = self._next_version(name)
                manifest = draft.model_copy(update={"version": version}).to_bytes()
                replace_file(partial / MANIFEST_FILE, manifest)
                replace_file(partial / MANIFEST_DIGEST_FILE, manifest_digest_line(manifest))
                _make_folder(self.root / name)
                target = self.root / name / str(version)
                try:
                    # Fails if another publisher has taken the number since: a version is never empty, and a
                    # folder is not renamed onto one with something in it. Then it is the next number.
                    os.rename(partial, target)
                except OSError as error:
                    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                        continue
                    raise
                sync_folder(target.parent)
                return ModelVersion(name, version, target, sha256(manifest))

    def _next_version(self, name: str) -> int:
        taken = [version for layer in self._layers for version in versions_in(layer, name)]
        version = max(taken, default=0) + 1
        if version > MAX_VERSION:
            raise PublishFailed(
                f"{name}: version {MAX_VERSION} is published, the last there can be; use another name"
            )
        return version

    # ----- finding --------------------------------------------------------------------------------------------

    def resolve(self, reference: str) -> ModelVersion:
        """The version that ``name``, ``name@version`` or an alias stands for, its manifest checked.

        Raises InvalidName, UnknownModel, CorruptStore, or CorruptCheckpoint for the version itself: the one
        before a damaged newest version is not silently taken in its place.
        """
        layer, name, version = self._find(reference)
        digest = read_manifest(layer, name, version).digest
        return ModelVersion(name, version, layer / name / str(version), digest, is_bundled=layer != self.root)

    def manifest(self, reference: str) -> Manifest:
        """The checked manifest of what `reference` stands for; errors as `resolve`."""
        return read_manifest(*self._find(reference))

    def load(self, reference: str) -> Checkpoint:
        """Read a version and check everything that can be checked without running it.

        That is every file's digest, and the arrays' names, shapes, type and finiteness against the manifest's
        configuration. Errors as `resolve`; CorruptCheckpoint names the file, what was found and what was
        expected. The golden case is left to whoever runs the model, on the device and in the precision that it
        is run in (`Checkpoint.golden.check`).
        """
        layer, name, version = self._find(reference)
        manifest, arrays = read_version(layer, name, version)
        try:
            return Checkpoint.from_files(manifest, arrays)
        except CorruptCheckpoint as error:
            raise error.inside(f"{name}/{version}") from error

    def verify(self, reference: str) -> GoldenErrors:
        """Load, and design the golden case as a CPU serves it; errors as `load`, and GoldenMismatch."""
        checkpoint = self.load(reference)
        return checkpoint.golden.check(create_backend("cpu", checkpoint.parameters))

    def list(self) -> list[ModelVersion]:
        """Every version whose manifest is sound, by name, then ascending; `broken` has the others."""
        return [each for each in self._all_versions().values() if isinstance(each, ModelVersion)]

    def broken(self) -> dict[str, str]:
        """What is wrong with the versions that cannot be read, by reference, with the aliases' file and with the
        root itself, as ``aliases.json`` and ``store``."""
        faults = {place: str(each) for place, each in self._all_versions().items() if isinstance(each, Exception)}
        if os.path.lexists(self.root) and not self.root.is_dir():
            faults["store"] = "store: this is not a folder; no model can be published into it"
        try:
            self._read_aliases()
        except CorruptStore as error:
            faults[ALIASES_FILE] = str(error)
        return faults

    def _all_versions(self) -> dict[str, ModelVersion | CorruptStore]:
        """Every version by reference, or why it cannot be read."""
        found: dict[Reference, ModelVersion | CorruptStore] = {}
        for layer in self._layers:
            for name in names_in(layer):
                try:
                    references = [Reference(name, version) for version in versions_in(layer, name)]
                except CorruptStore as error:
                    found[Reference(name, None)] = error
                    continue
                for reference in references:
                    try:
                        found[reference] = self.resolve(str(reference))
                    except CorruptStore as error:
                        found[reference] = error
        in_order = sorted(found, key=lambda each: (each.name, each.version or 0))
        return {str(reference): found[reference] for reference in in_order}

    def _find(self, reference: str) -> tuple[Path, str, int]:
        """Layer, name and number of what a reference stands for, aliases included."""
        wanted = parse_reference(reference)
        # A model of the root is found without reading the aliases, so that a damaged file does not hide it.
        if wanted.version is not None or versions_in(self.root, wanted.name):
            return self._find_model(wanted)
        target = self._read_aliases().get(wanted.name)
        if target is None:
            return self._find_model(wanted)
        try:
            return self._find_model(parse_reference(target))
        except UnknownModel as error:
            raise UnknownModel(f"alias {wanted.name} stands for {target}: {error}") from error

    def _find_model(self, wanted: Reference) -> tuple[Path, str, int]:
        """The same for the name of a model, never of an alias."""
        for layer in self._layers:
            versions = versions_in(layer, wanted.name)
            if versions and wanted.version in (None, *versions):
                return layer, wanted.name, wanted.version or versions[-1]
        known = ", ".join(sorted({name for layer in self._layers for name in names_in(layer)})) or "none"
        raise UnknownModel(f"model: there is no {str(wanted)!r}; there are versions of: {known}")

    # ----- aliases --------------------------------------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        """Aliases and the references that they stand for; {} where their file cannot be read (see `broken`)."""
        try:
            return self._read_aliases()
        except CorruptStore:
            return {}

    def _read_aliases(self) -> dict[str, str]:
        """The same, but CorruptStore where the file cannot be read."""
        if not os.path.lexists(self.root / ALIASES_FILE):
            return {}
        data = read_plain_file(self.root, ALIASES_FILE)
        try:
            found = parse_json(data)
            return {check_name(alias): str(parse_reference(target)) for alias, target in found.items()}
        except (ValueError, AttributeError, InvalidName) as error:
            raise CorruptStore(
                ALIASES_FILE, "no table of aliases", "names with the references they stand for"
            ) from error

    def set_alias(self, alias: str, reference: str) -> ModelVersion:
        """Let `alias` stand for ``name`` (its newest version, whichever that will be) or ``name@version``.

        An alias of the same name is replaced. Returns what it stands for now. Raises InvalidName where `alias` is
        a model of the root or `reference` is itself an alias, UnknownModel or CorruptStore where `reference`
        leads nowhere, PublishFailed where the disk refuses.
        """
        check_name(alias)
        target = parse_reference(reference)
        with self._writing_aliases(alias) as aliases:
            if versions_in(self.root, alias):
                raise InvalidName(f"alias: {alias!r} is a model's name; choose a name that is free")
            if target.version is None and target.name in aliases:
                raise InvalidName(f"alias target: {reference!r} is itself an alias; give a model or a version")
            _, name, version = self._find_model(target)
            resolved = self.resolve(f"{name}@{version}")
            aliases[alias] = str(target)
        return resolved

    def remove_alias(self, alias: str) -> None:
        """Forget an alias; UnknownModel if there is none of that name."""
        with self._writing_aliases(alias) as aliases:
            if alias not in aliases:
                known = ", ".join(sorted(aliases)) or "none"
                raise UnknownModel(f"alias: there is no {alias!r}; there are: {known}")
            del aliases[alias]

    @contextmanager
    def _writing_aliases(self, alias: str) -> Iterator[dict[str, str]]:
        """The table, to be changed and put back, by one process at a time; left as it was if the body raises."""
        try:
            _make_folder(self.root)
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                aliases = self._read_aliases()
                yield aliases
                table = json.dumps(aliases, indent=2, sort_keys=True) + "\n"
                replace_file(self.root / ALIASES_FILE, table.encode())
            finally:
                os.close(descriptor)  # which unlocks
        except OSError as error:
            raise PublishFailed(f"alias {alias}: not changed ({error.strerror})") from error


def _checked_manifest(name: str, checkpoint: Checkpoint, arrays: dict[str, bytes], created: datetime) -> Manifest:
    """The manifest to write, but for its number, after loading from memory what is about to be written.

    So nothing is published that `load` would refuse, without a second set of rules.
    """
    try:
        draft = checkpoint.manifest.published(
            name,
            1,
            created,
            checkpoint.parameters.config.to_dict(),
            checkpoint.parameters.config.n_parameters,
            {file: sha256(data) for file, data in arrays.items()},
        )
        draft = Manifest.from_bytes(draft.to_bytes())
    except ValueError as error:
        raise PublishFailed(f"{name}: not published, its manifest cannot be written ({error})") from error
    loaded = Checkpoint.from_files(draft, arrays)
    loaded.golden.check(create_backend("reference", loaded.parameters))
    return draft


def _make_folder(folder: Path) -> None:
    """Create a folder unless it exists, and fsync its parent."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    sync_folder(folder.parent)
