"""`python -m benchmarks scaling` in a tiny form: both ends of each axis."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.scaling import regridded
from synthesis.gauss_newton import FAST, FINE


@pytest.mark.parametrize("n_fft", [8192, 65_536])
def test_a_spectrum_keeps_its_power_on_another_grid(n_fft: int) -> None:
    psd = 1 / (1 + np.linspace(0, 50, 16_385))
    found = regridded(psd, n_fft)
    assert found.shape == (n_fft // 2 + 1,)
    assert found.sum() == pytest.approx(psd.sum(), rel=2e-3)


def test_the_command_writes_four_axes(tmp_path: Path) -> None:
    assert main(["scaling", "--quick", "--threads", "1", "--device", "cpu", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "scaling.json").read_text())["rows"]
    values = {axis: sorted({row["value"] for row in rows if row["axis"] == axis}) for axis in ("taps", "updates")}
    assert values == {"taps": [512, 8192], "updates": [0, 8]}
    assert {(row["axis"], row["by"]) for row in rows} == {
        ("taps", "reference"),
        ("taps", "scipy"),
        ("grid", "served"),
        ("grid", "reference"),
        ("batch", "served"),
        ("updates", "served"),
    }
    served = {row["value"] for row in rows if (row["axis"], row["by"]) == ("grid", "served")}
    assert served == {each.n_fft for each in (FAST, FINE)}
    least, most = (
        next(row for row in rows if (row["axis"], row["value"], row["what"]) == ("updates", k, "refine"))
        for k in (0, 8)
    )
    assert most["ms"]["p50"] > least["ms"]["p50"]
    assert all(row["ms"]["n"] == 2 and row["ms"]["p50"] > 0 for row in rows)
