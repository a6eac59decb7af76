"""The service reads the page's binary requests."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from service.api.reading import parse_tensors, validate_object
from service.api.request_types import DesignBody

MODULE = Path(__file__).parents[2] / "workbench" / "tensors.js"
SCRIPT = """
import { encoded } from "%s";
const ear = (gain) => ({ primary: Float32Array.of(0, gain), secondary: Float32Array.of(1, 0.5) });
const request = { sample_rate: 48000, k: 2, conditions: [{ ...ear(1), label: "\u00e9" }, { ...ear(2), weight: 3 }] };
process.stdout.write(Buffer.from(await new Blob(encoded(request)).arrayBuffer()));
"""


def test_page_encodes_requests(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not on PATH")
    (tmp_path / "tensors.mjs").write_text(MODULE.read_text())
    script = tmp_path / "script.mjs"
    script.write_text(SCRIPT % "./tensors.mjs")
    done = subprocess.run([node, str(script)], capture_output=True, check=True)
    found = validate_object(DesignBody, parse_tensors(done.stdout))
    assert (found.k, [condition.label for condition in found.conditions]) == (2, ["é", ""])
    assert [condition.weight for condition in found.conditions] == [1, 3]
    np.testing.assert_array_equal(found.conditions[1].primary, np.float32([0, 2]))
