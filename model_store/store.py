"""Publish, resolve, load, alias.

ROOT/NAME/VERSION/          one immutable version: manifest.json, manifest.sha256 and the tensor files
ROOT/aliases.json           other names for a model or for one version of it

A model published in the root takes precedence over a bundled one of the same name. The bundled models are package
data and never written to.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from model_store.checkpoint import Checkpoint
from model_store.durable import partial_folder, replace_file, sweep, sync_folder, write_new
from model_store.errors import CorruptCheckpoint, CorruptStore, InvalidName, PublishFailed, UnknownModel
from model_store.manifest import Manifest, sha256
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

DEFAULT_ROOT = Path(__file__).parent / "checkpoints"
BUNDLED_ROOT = Path(str(files("model_store"))) / "bundled"
ALIASES_FILE = "aliases.json"


@dataclass(frozen=True)
class ModelVersion:
    """One published version. folder: where it lies. digest: of its manifest, which names every other file's."""

    name: str
    version: int
    folder: Path
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class ModelStore:
    """A folder of published models, together with the bundled ones."""

    def __init__(self, root: Path | str = DEFAULT_ROOT, include_bundled: bool = True) -> None:
        """root: need not exist; it is made by the first publish."""
        self.root = Path(root)
        self._roots = (self.root, BUNDLED_ROOT) if include_bundled else (self.root,)

    def publish(self, name: str, checkpoint: Checkpoint) -> ModelVersion:
        """Write `checkpoint` as the next version of `name`, whole or not at all.

        What is about to be written is read back as a loader would read it, and its golden case is asked, before
        anyone can see it. Raises InvalidName, CorruptCheckpoint or GoldenMismatch for a checkpoint that would
        not load, and PublishFailed (the store as it was) where the disk refuses.
        """
        check_name(name)
        if name in self.aliases():
            raise InvalidName(f"model name: found {name!r}, which is an alias, expected a name that is free")
        tensors = checkpoint.tensor_files()
        digests = {file: sha256(data) for file, data in tensors.items()}
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            sweep(self.root)
            return self._write(name, checkpoint, tensors, digests)
        except OSError as error:
            raise PublishFailed(
                f"{name}: not published ({error.strerror or error}); the store is as it was"
            ) from error

    def _write(
        self, name: str, checkpoint: Checkpoint, tensors: dict[str, bytes], digests: dict[str, str]
    ) -> ModelVersion:
        generator = checkpoint.generator
        (self.root / name).mkdir(exist_ok=True)
        try:
            while True:
                version = max(versions_in(self.root, name), default=0) + 1
                if version > MAX_VERSION:
                    raise PublishFailed(f"{name}: found version {MAX_VERSION}, expected a number below")
                manifest = checkpoint.manifest.published(
                    name,
                    version,
                    datetime.now(UTC),
                    generator.config.to_dict(),
                    generator.n_parameters,
                    digests,
                )
                Checkpoint.from_files(manifest, tensors).check_golden()
                data = manifest.to_bytes()
                everything = {
                    **tensors,
                    MANIFEST_FILE: data,
                    MANIFEST_DIGEST_FILE: manifest_digest_line(data),
                }
                with partial_folder(self.root) as partial:
                    for file, content in everything.items():
                        write_new(partial / file, content)
                    sync_folder(partial)
                    target = self.root / name / str(version)
                    try:
                        os.rename(partial, target)
                    except OSError as error:
                        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                            continue  # another publisher took this number: the next one
                        raise
                sync_folder(self.root / name)
                sync_folder(self.root)
                return ModelVersion(name, version, target, manifest.digest)
        finally:
            if not versions_in(self.root, name):
                (self.root / name).rmdir()

    def resolve(self, reference: str) -> ModelVersion:
        """The version that a name, alias or ``name@version`` stands for, its manifest checked.

        Raises InvalidName, UnknownModel, CorruptStore or CorruptCheckpoint.
        """
        root, wanted = self._find(reference)
        assert wanted.version is not None
        digest = read_manifest(root, wanted.name, wanted.version).digest
        return ModelVersion(wanted.name, wanted.version, root / wanted.name / str(wanted.version), digest)

    def manifest(self, reference: str) -> Manifest:
        """The manifest of what `reference` stands for."""
        root, wanted = self._find(reference)
        assert wanted.version is not None
        return read_manifest(root, wanted.name, wanted.version)

    def load(self, reference: str) -> Checkpoint:
        """Read a version, every digest, shape and value checked; CorruptCheckpoint where one fails."""
        root, wanted = self._find(reference)
        assert wanted.version is not None
        manifest, tensors = read_version(root, wanted.name, wanted.version)
        try:
            return Checkpoint.from_files(manifest, tensors)
        except CorruptCheckpoint as error:
            raise error.inside(str(wanted).replace("@", "/")) from error

    def verify(self, reference: str) -> ModelVersion:
        """Load, and ask the golden case; raises what `load` raises, and GoldenMismatch."""
        self.load(reference).check_golden()
        return self.resolve(reference)

    def list(self) -> list[ModelVersion]:
        """Every readable version, by name, then ascending; versions that do not read are left to `broken`."""
        return [self.resolve(reference) for reference in self._references() if self._fault(reference) is None]

    def broken(self) -> dict[str, str]:
        """What is wrong with the versions whose manifest cannot be read, by reference."""
        faults = {reference: self._fault(reference) for reference in self._references()}
        return {reference: fault for reference, fault in faults.items() if fault is not None}

    def aliases(self) -> dict[str, str]:
        """Aliases and the references that they stand for."""
        if not (self.root / ALIASES_FILE).exists() and not (self.root / ALIASES_FILE).is_symlink():
            return {}
        data = read_plain_file(self.root, ALIASES_FILE)
        try:
            found = json.loads(data)
            return {check_name(alias): str(parse_reference(target)) for alias, target in found.items()}
        except (ValueError, AttributeError, TypeError, InvalidName) as error:
            raise CorruptStore(
                ALIASES_FILE, "no table of aliases", "names with the references they stand for"
            ) from error

    def set_alias(self, alias: str, reference: str) -> None:
        """Let `alias` stand for `reference` (a name: always its latest version; or one version).

        Raises InvalidName where `alias` is a published model's name, UnknownModel where nothing goes by
        `reference`, PublishFailed where the disk refuses.
        """
        check_name(alias)
        target = parse_reference(reference)
        if versions_in(self.root, alias):
            raise InvalidName(f"alias: found {alias!r}, which is a model's name, expected a name that is free")
        aliases = self.aliases()
        if target.name in aliases:
            raise InvalidName(f"alias target: found {reference!r}, itself an alias, expected a model or a version")
        self._find(reference)
        table = json.dumps({**aliases, alias: str(target)}, indent=2, sort_keys=True) + "\n"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            replace_file(self.root / ALIASES_FILE, table.encode())
        except OSError as error:
            raise PublishFailed(f"alias {alias}: not set ({error.strerror or error})") from error

    def _find(self, text: str) -> tuple[Path, Reference]:
        """The root that holds what `text` stands for, and its exact reference."""
        wanted = parse_reference(text)
        if wanted.version is None and wanted.name in (aliases := self.aliases()):
            wanted = parse_reference(aliases[wanted.name])
        for root in self._roots:
            versions = versions_in(root, wanted.name)
            if versions and wanted.version is None:
                return root, Reference(wanted.name, versions[-1])
            if wanted.version in versions:
                return root, wanted
        known = ", ".join(sorted({name for root in self._roots for name in names_in(root)})) or "none"
        raise UnknownModel(f"model: found no {text!r}, expected one of: {known}")

    def _references(self) -> Iterator[str]:
        seen: set[str] = set()
        for root in self._roots:
            for name in names_in(root):
                for version in versions_in(root, name):
                    reference = f"{name}@{version}"
                    if reference not in seen:
                        seen.add(reference)
                        yield reference

    def _fault(self, reference: str) -> str | None:
        try:
            self.resolve(reference)
        except CorruptStore as error:
            return str(error)
        return None

    # ----- where things are -------------------------------------------------------------------------------------

    def _find(self, reference: str) -> tuple[Path, str, int]:
        """Layer, name and number of what a reference stands for, aliases included."""
        wanted = parse_reference(reference)
        # A model of the root is found without reading the aliases, so that a damaged aliases file cannot hide it.
        if wanted.version is not None or version_folder.versions_in(self.root, wanted.name):
            return self._find_model(wanted)
        target = self.aliases().get(wanted.name)
        if target is None:
            return self._find_model(wanted)
        try:
            return self._find_model(parse_reference(target))
        except UnknownModel as error:
            raise UnknownModel(f"alias {wanted.name} stands for {target}: {error}") from error

    def _find_model(self, wanted: Reference) -> tuple[Path, str, int]:
        known: set[int] = set()
        for layer in self._layers:
            versions = version_folder.versions_in(layer, wanted.name)
            known.update(versions)
            if versions and wanted.version in (None, *versions):
                return layer, wanted.name, wanted.version or versions[-1]
        if known:
            numbers = ", ".join(map(str, sorted(known)[-8:]))
            raise UnknownModel(f"model {wanted.name}: found no version {wanted.version}, expected one of {numbers}")
        raise UnknownModel(f"model {wanted.name}: found none of that name, expected a published one")

    def _version(self, layer: Path, name: str, version: int) -> ModelVersion:
        digest = version_folder.read_manifest(layer, name, version).digest
        folder = layer / name / str(version)
        return ModelVersion(name, version, folder, digest, is_bundled=layer != self.root)

    def _described(self, layer: Path, name: str, version: int) -> ModelVersion:
        """As `_version`, with the fault in place of the digest where there is one."""
        try:
            return self._version(layer, name, version)
        except CorruptStore as error:
            folder = layer / name / str(version)
            return ModelVersion(name, version, folder, "", is_bundled=layer != self.root, fault=str(error))


def _make_folder(folder: Path) -> None:
    """Make a folder that may be there already, and make a new one's name durable."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    sync_folder(folder.parent)
