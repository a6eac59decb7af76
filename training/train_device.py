"""Train a generator on the listeners of a device (`model_store.devices`), and publish it as the device's model.

    python -m training.train_device NAME [--store DIR] [--updates N]

The listeners become an index data set in a temporary folder, calibrated anew with synthetic noises.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from model_store.devices import Devices
from model_store.errors import ModelStoreError
from model_store.manifest import Scores
from model_store.store import DEFAULT_ROOT, ModelStore, ModelVersion
from prime_anc.measure.device import ListenerEar
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.config import Configuration
from training.data import Data
from training.datasets.index import INDEX_FILE
from training.datasets.path_pairs import DatasetError
from training.experiment import make_checkpoint
from training.support import SupportSet

GENERATOR = "prime-log"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and publish; return the exit status. An error in the request is one line and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--store", default=str(DEFAULT_ROOT))
    parser.add_argument("--updates", type=int, help="training updates (default: as configured)")
    request = parser.parse_args(arguments)
    try:
        print(train_device(Devices(ModelStore(request.store)), request.name, request.updates))
    except (DatasetError, ModelStoreError, OSError) as error:
        print(f"train_device: {error}", file=sys.stderr)
        return 2
    return 0


def train_device(devices: Devices, name: str, n_updates: int | None = None) -> ModelVersion:
    """Train a generator on all listeners of a device, and publish it with their statistics.

    Parameters
    ----------
    devices
        Devices of a store.
    name
        A device with at least two listeners.
    n_updates
        Training updates; None: as configured.

    Raises
    ------
    DatasetError, ModelStoreError
        The device has too few listeners, does not exist, is damaged or lost a listener meanwhile.
    """
    ears = devices.ears(name)
    with TemporaryDirectory() as folder:
        write_index(Path(folder) / "data", ears)
        configuration = Configuration.load(
            {
                "dataset": "index",
                "data": Path(folder) / "data",
                "out": Path(folder) / "run",
                "splits": 1,
                "support": 1,
                "calibration": "prior",
                "updates": n_updates,
            }
        )
        data = Data(configuration)
        support = SupportSet(data, data.everybody.support, data.dataset.listeners, (), 0, 0, f"{name}/seed0")
        return devices.publish(name, make_checkpoint(support, GENERATOR, None, Scores()), ears)


def write_index(folder: Path, ears: Sequence[ListenerEar]) -> None:
    """Write ears as an index data set; ears of one listener are the left and the right one, then further ones."""
    folder.mkdir(parents=True)
    counts: dict[str, int] = {}
    with (folder / INDEX_FILE).open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("listener", "ear", "condition", "primary", "secondary"))
        for n, ear in enumerate(ears):
            place = counts[ear.listener] = counts.get(ear.listener, 0) + 1
            np.savez(folder / f"{n}.npz", primary=ear.primary, secondary=ear.secondary, sample_rate=SAMPLE_RATE_HZ)
            side = {1: "left", 2: "right"}.get(place, "mono")
            label = "" if place < 3 else str(place)
            table.writerow((ear.listener, side, label, f"{n}.npz#primary", f"{n}.npz#secondary"))


if __name__ == "__main__":
    sys.exit(main())
