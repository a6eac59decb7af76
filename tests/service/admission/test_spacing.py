"""Moments apart."""

from itertools import pairwise
from time import perf_counter, sleep

import pytest

from service.admission.spacing import Spacing


def test_a_crowd_gets_moments_apart_and_the_first_of_it_at_once() -> None:
    spacing, gap_s = Spacing(10.0), 10.0  # so long that no pause of this process matters
    began = perf_counter()
    moments = [perf_counter() + spacing.wait_s() for _ in range(4)]
    assert moments[0] - began < gap_s / 2
    assert [later - sooner for sooner, later in pairwise(moments)] == pytest.approx([gap_s] * 3, abs=gap_s / 2)


def test_who_comes_after_the_crowd_does_not_wait() -> None:
    spacing = Spacing(1e-6)
    for _ in range(3):
        spacing.wait_s()
    sleep(1e-3)
    assert spacing.wait_s() == 0
