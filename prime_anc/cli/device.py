"""`prime-anc device`: an earphone that the package does not know learns itself from its listeners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from model_store.devices import Device, Devices
from model_store.store import DEFAULT_ROOT, ModelStore, existing_store
from prime_anc import answers
from prime_anc.cli import tables
from prime_anc.inputs import bench
from prime_anc.measure.device import TRAINED_LISTENERS, ListenerEar
from prime_anc.measure.files.errors import FileError
from prime_anc.method.support.findings import find_implausible

NAME = click.argument("name")
STORE = click.option(
    "--store",
    default=str(DEFAULT_ROOT),
    show_default=False,
    help="Folder of models; default: PRIME_STORE, or the package's.",
)


@click.group()
def device() -> None:
    """Teach a model an earphone, headset or other device.

    \b
    prime-anc device add mine anna.json ben.json
    prime-anc calibrate off.wav on.wav --gain 0.35 --store STORE --model mine -o carl.json

    From two listeners on measurements are compared with theirs, from five recordings are estimated under the prior of
    their paths, with ten a generator can be trained.
    """


@device.command()
@NAME
@click.argument("ears", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--listener", help="Whose ears all these files are; default: one listener per file, of its name.")
@STORE
def add(name: str, ears: Sequence[Path], listener: str | None, store: str) -> None:
    """Add calibrations to device NAME.

    EARS: files of `prime-anc calibrate` that passed. Only their estimated paths are stored.
    """
    devices = Devices(ModelStore(store))
    known = devices.model_of(name)
    support = known.parameters.support if known else None
    found = []
    for file in ears:
        ear = read_ear(file, listener or file.stem)
        if faults := find_implausible(support, ear.primary, ear.secondary):
            raise FileError(f"{file}: unlike the listeners of {name}: {faults[0].detail}")
        found.append(ear)
    n_before = len(devices.ears(name))
    made = devices.add(name, found)
    if n_left_out := n_before + len(found) - made.n_ears:
        tables.notes([f"{n_left_out} of {len(found)} ears left out: known already, or beyond the most that count"])
    _show([made])


@device.command("list")
@STORE
def list_(store: str) -> None:
    """List devices with their listeners."""
    devices = Devices(existing_store(store))
    _show([devices.device(name) for name in devices.names()])


@device.command()
@NAME
@click.option("--listener", help="Remove this listener alone.")
@STORE
def remove(name: str, listener: str | None, store: str) -> None:
    """Delete device NAME, its listeners' paths and its models.

    Of a listener also the models made with their paths, and generators trained on them: aliases then stand for a model
    made without.
    """
    heir = Devices(existing_store(store)).remove(name, listener)
    said = [f"removed: {name}{f', {listener}' if listener else ''}"]
    tables.notes(said + ([f"its model is now {heir}"] if heir else []), "")


@device.command()
@NAME
@STORE
def train(name: str, store: str) -> None:
    """Train a generator on the listeners of device NAME, some minutes on two cores."""
    try:
        from training.train_device import train_device
    except ImportError as error:
        raise click.UsageError(f"{error}; pip install 'prime-anc[training]'") from error

    devices = Devices(existing_store(store))
    n_listeners = len(devices.device(name).listeners)
    if n_listeners < TRAINED_LISTENERS:
        raise click.UsageError(f"{name} has {n_listeners} listeners; a generator needs {TRAINED_LISTENERS}")
    tables.notes([f"published: {train_device(devices, name)}"], "")


def read_ear(file: Path, listener: str) -> ListenerEar:
    """Read a calibration that passed; raises FileError."""
    try:
        ear = answers.read(answers.CalibrationAnswer, bench.load(file))
    except ValueError as error:
        raise FileError(f"{file}: {error}; give a file of `prime-anc calibrate`") from error
    if not ear.verdict.passed:
        raise FileError(f"{file}: it is no calibration that passed; measure again")
    return ListenerEar(listener, ear.primary.impulse_response, ear.secondary.impulse_response, ear.coherence)


def _show(found: Sequence[Device]) -> None:
    rows = [(item.name, len(item.listeners), item.n_ears, item.model or "") for item in found]
    tables.columns(("device", "listeners", "ears", "model"), rows)
