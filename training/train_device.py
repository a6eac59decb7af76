"""Train a generator on the listeners of a device (`model_store.devices`), and publish it as the device's model.

The listeners become an index data set in a temporary folder, calibrated anew with synthetic noises.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from model_store.devices import Devices
from model_store.manifest import Scores
from model_store.store import ModelVersion
from prime_anc.measure.device import ListenerEar
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.config import Configuration
from training.data import Data
from training.datasets.index import INDEX_FILE
from training.experiment import make_checkpoint
from training.support import SupportSet

GENERATOR = "prime-log"


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
    rows = []
    for n, ear in enumerate(ears):
        place = sum(other.listener == ear.listener for other in ears[:n])
        np.savez(folder / f"{n}.npz", primary=ear.primary, secondary=ear.secondary, sample_rate=SAMPLE_RATE_HZ)
        side, label = (("left", "right")[place], "") if place < 2 else ("mono", str(place + 1))
        rows.append((ear.listener, side, label, f"{n}.npz#primary", f"{n}.npz#secondary"))
    heading = ["listener", "ear", "condition", "primary", "secondary"]
    pd.DataFrame(rows, columns=heading).to_csv(folder / INDEX_FILE, index=False)
