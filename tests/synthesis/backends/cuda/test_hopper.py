"""The kernels compile for sm_90 with few barriers, and only one spills registers."""

import os

import pytest

from tests.synthesis.backends.cuda.hopper import compiled

pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")

LIMITS = {  # barriers, and bytes of spilled registers per thread: Triton 3.6 takes these, 3.7 no more
    "_sequences": (23, 0),
    "_generating_polynomial": (17, 0),
    "_eigenvalues": (11, 0),
    "_iterations": (37, 256),
    "_system": (6, 0),
    "_limit_response": (25, 0),
    "_limited_taps": (17, 0),
    "_correct": (43, 0),
    "_spectra": (42, 0),
    "_pool": (41, 0),
    "_response": (9, 0),
    "_sample_paths": (17, 0),
    "_normal_equations": (11, 0),
    "_try_steps": (14, 0),
    "_apply_step": (8, 0),
}
QUICK = ("_response", "_normal_equations")
FOLDER = os.environ.get("PRIME_TEST_TRITON")
"""Another version of Triton, as from `pip install --no-deps --target FOLDER triton==3.6.0`."""


@pytest.mark.parametrize(
    ("names", "triton_folder"),
    [
        pytest.param(QUICK, None, id="installed"),
        pytest.param(  # all, which takes minutes
            tuple(LIMITS),
            FOLDER,
            id="another",
            marks=pytest.mark.skipif(not FOLDER, reason="PRIME_TEST_TRITON names no second version of Triton"),
        ),
    ],
)
def test_kernels_compile_within_the_limits(names: tuple[str, ...], triton_folder: str | None) -> None:
    found = compiled(names, triton_folder)
    assert set(found) == set(names)
    for name, each in found.items():
        barriers, stack = LIMITS[name]
        assert each["barriers"] <= barriers, each
        assert each["stack"] <= stack, each
        assert each["registers"] <= 65_536, each  # of an SM
        assert each["shared"] <= 48 * 1024, each
        assert each["variants"] == [], each
