"""The kernels compile for sm_90 into code without detours, by the Triton versions that are at hand."""

import os

import pytest

from tests.synthesis.backends.cuda.hopper import compiled

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")

LIMITS = {  # barriers, and stack of a thread in bytes: what Triton 3.6 needs, where 3.7 has no more
    "_sequences": (23, 0),
    "_generating_polynomial": (17, 0),
    "_eigenvalues": (11, 0),
    "_iterations": (37, 256),
    "_system": (6, 0),
    "_bend": (25, 0),
    "_bent": (17, 0),
    "_correct": (43, 0),
    "_spectra": (42, 0),
    "_pool": (41, 0),
    "_response": (9, 0),
    "_on_grid": (17, 0),
    "_normal_equations": (11, 0),
    "_try_steps": (14, 0),
    "_move": (8, 0),
}
QUICK = ("_response", "_normal_equations")


def test_by_the_installed_version() -> None:
    hold(QUICK, None)


def test_all_by_another_version() -> None:
    """Installed for itself, as by `pip install --no-deps --target FOLDER triton==3.6.0`. Takes minutes."""
    folder = os.environ.get("PRIME_TEST_TRITON")
    if not folder:
        pytest.skip("no second version of Triton: PRIME_TEST_TRITON names no folder")
    hold(tuple(LIMITS), folder)


def hold(names: tuple[str, ...], triton_folder: str | None) -> None:
    """Compile, and compare with LIMITS and with what an SM has."""
    found = compiled(names, triton_folder)
    assert set(found) == set(names)
    for name, each in found.items():
        barriers, stack = LIMITS[name]
        assert each["barriers"] <= barriers, each
        assert each["stack"] <= stack, each
        assert each["registers"] <= 65_536, each
        assert each["shared"] <= 48 * 1024, each
        assert each["variants"] == [], each
