"""Publish a model again with the changes by wearing that its listeners show, and nothing else new.

    python -m training.publish_wearing NAME --data DIR --store DIR

DIR is PANDAR, whose listeners the bundled models know. A model that knows no device gets what earphones have in common:
the leaky and the open ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model_store.errors import ModelStoreError
from model_store.store import BUNDLED_ROOT, ModelStore
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import DatasetError
from training.measurements import LOOSE, OPEN, wearing_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish; return the exit status. A mistake in the request is one line on standard error and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of a bundled model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", required=True)
    request = parser.parse_args(arguments)
    try:
        base = ModelStore(BUNDLED_ROOT).load(request.name)
        manifest = base.manifest
        changes = wearing_of(request.data, read_pandar(request.data), manifest.support)
        if manifest.device is None:
            changes = tuple(change for change in changes if change.name in (*LOOSE, OPEN))
        renewed = replace(base, manifest=manifest.model_copy(update={"wearing": changes}))
        print(ModelStore(request.store, include_bundled=False).publish(request.name, renewed))
    except (DatasetError, ModelStoreError, OSError) as error:
        print(f"publish_wearing: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
