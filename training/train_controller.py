"""Design one controller for all listeners, and publish it: `controller` in requests takes its name.

    python -m training.train_controller NAME --model MODEL [--dataset pandar --data DIR] [--latency-us 10 ...]

The loop is stable on every listener's paths, and as the listeners of MODEL wear the earphone otherwise. Without --data
the listeners are those of MODEL, a device (`prime-anc device`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from model_store.controller import Margins, PublishedController
from model_store.devices import Devices
from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.hardware.hybrid import design_for_all
from prime_anc.method.errors import SynthesisError
from prime_anc.method.types import DesignOptions, Model, Paths, Problem
from prime_anc.options import ControllerFields, controller_schemas
from training.data import open_dataset
from training.datasets.path_pairs import DatasetError

OPTIONS = DesignOptions("prime", 3, "fine")
# Fields of a data set or of a model that its controller's manifest states as well.
ORIGIN = ("licence", "attribution")


def main(arguments: Sequence[str] | None = None) -> int:
    """Design and publish; return the exit status. An error in the request is one line and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--model", default="generic", help="whose noise and wearing are used (default: generic)")
    parser.add_argument("--dataset", choices=("pandar", "index", "simulated"), help="default: a device's listeners")
    parser.add_argument("--data", type=Path, help="folder of the data set")
    parser.add_argument("--store", default=str(DEFAULT_ROOT))
    parser.add_argument("--latency-samples", type=float, default=0.0, help="of the filter's chain, at 48 kHz")
    for name, schema in controller_schemas().items():
        kind = {"integer": int, "string": str}.get(schema.get("type", ""), float)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=schema["description"])
    request = parser.parse_args(arguments)
    try:
        published = ModelStore(request.store).publish(request.name, designed(request))
    except (ModelStoreError, SynthesisError, OSError, ValueError) as error:
        print(f"train_controller: {error}", file=sys.stderr)
        return 2
    print(f"published {published} in {request.store}")
    return 0


def designed(request: argparse.Namespace) -> PublishedController:
    """Design the requested controller.

    Raises
    ------
    DatasetError, ModelStoreError, SynthesisError
        There are no listeners, no such model, or no controller for them.
    """
    store = ModelStore(request.store)
    base = store.load(request.model)
    if request.dataset is None:
        known = Devices(store).ears(request.model)
        ears = [
            Paths(ear.primary, ear.secondary, ear.coherence, label=f"{ear.listener}/{n}")
            for n, ear in enumerate(known)
        ]
        origin = base.manifest.model_dump(include={"dataset", "support", "data_fingerprint", *ORIGIN})
    else:
        dataset = open_dataset(request.dataset, request.data)
        # Without feedback: a loop through it depends on each listener's filter.
        ears = [
            Paths(
                *(path.astype(np.float32) for path in (pair.primary, pair.secondary)),
                label=f"{pair.listener}/{pair.place}",
            )
            for pair in dataset.pairs
        ]
        origin = {name: getattr(dataset, name) for name in ORIGIN}
        origin |= {"dataset": dataset.name, "support": dataset.listeners, "data_fingerprint": dataset.fingerprint}
    if not ears:
        raise DatasetError(f"--dataset: {request.model} is no device with listeners; give a data set")
    given = {item.name: getattr(request, item.name) for item in fields(ControllerFields)}
    wanted = ControllerFields(**{name: value for name, value in given.items() if value is not None})
    problems = [Problem((ear,), latency_samples=request.latency_samples) for ear in ears]
    controller, loops = design_for_all(problems, OPTIONS, Model.on("cpu", base.parameters), wanted)
    return PublishedController(
        **origin,
        device=base.manifest.device,
        sos=controller.sections.rows.tolist(),
        sample_rate=wanted.sample_rate,
        latency_us=wanted.latency_us,
        number_format=wanted.number_format,
        plants={label: Margins.of(loop) for label, loop in loops.items()},
    )


if __name__ == "__main__":
    sys.exit(main())
