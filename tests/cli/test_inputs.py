"""JSON measurements with contradicting or failed content."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.inputs import ear
from cli.words import for_command
from measurement.files.errors import FileError

PATH = {"impulse_response": [1.0, 0.5]}


def written(file: Path, **fields: Any) -> Path:
    """Write a measurement."""
    file.write_text(json.dumps({"primary": PATH, "secondary": PATH} | fields))
    return file


@pytest.mark.parametrize("name", ["sample_rate", "fs", "SamplingRate"])
def test_json_at_another_rate_is_rejected(tmp_path: Path, name: str) -> None:
    assert ear(written(tmp_path / "ear.json", **{name: 48_000}))[1] == ()
    with pytest.raises(FileError, match="states 44100 Hz"):
        ear(written(tmp_path / "ear.json", **{name: 44_100}))


def test_coherence_of_file_travels_as_tensor(tmp_path: Path) -> None:
    """As JSON, that of four measurements would exceed the header."""
    fields, _ = ear(written(tmp_path / "ear.json", coherence=[0.9] * 16_385))
    assert isinstance(fields["coherence"], np.ndarray)


def test_failed_calibration_is_reported(tmp_path: Path) -> None:
    verdict = {"passed": False, "reasons": [{"code": "clipping"}]}
    (note,) = ear(written(tmp_path / "ear.json", verdict=verdict))[1]
    assert "did not pass (clipping)" in note


def test_texts_name_flags_instead_of_fields():
    assert for_command("lower max_gain_db there") == "lower --max-gain-db there"
    assert for_command("conditions.0 (ear) and conditions.1: `sign`") == "ear and measurement 2: --sign"
    assert for_command("takes.1, x: it is silent", [Path("off.wav"), Path("on.wav")]) == "on.wav, x: it is silent"
    assert (
        for_command("prediction.max_gain_db; see GET /models") == "prediction.max_gain_db; see `prime-anc models`"
    )
