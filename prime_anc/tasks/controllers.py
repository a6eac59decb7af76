"""Feedback controllers in answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.answers import ControllerAnswer, ScalingAnswer
from prime_anc.hardware.hybrid import playback_peak_db
from prime_anc.hardware.realise import realised_sections
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from prime_anc.options import Sign
from prime_anc.requests.controllers import RunningController, in_sign


def running_answer(body: Any) -> ControllerAnswer | None:
    """Return the controller that runs in a request; None if none does."""
    running = getattr(body, "controller", None)
    if not isinstance(running, RunningController):
        return None
    controller = in_sign(running.controller, body.sign)
    return controller_answer(controller, running.number_format, body.sign, playback=running.playback_sos)


def controller_answer(
    controller: Controller,
    number_format: str,
    sign: Sign,
    *,
    needed_format: str | None = None,
    playback: NDArray[np.float64] | None = None,
) -> ControllerAnswer:
    """Return a controller as answers hold it.

    Parameters
    ----------
    controller
        The controller, for e = d - s * y.
    number_format
        Format of its coefficients.
    sign
        Sign of the request, which the rows follow.
    needed_format
        Least format that resolves its poles, if `number_format` does not.
    playback
        Rows for what is played besides, [n, 6].
    """
    realised = realised_sections(in_sign(controller, sign).sections, number_format)
    assert realised.sections is not None
    rate_hz, of_format, of_playback = realised.sample_rate_hz, {}, {}
    if realised.quantised is not None and realised.scaling is not None:
        of_format = {
            "words": realised.quantised.words.tolist(),
            "shift": realised.quantised.shift.tolist(),
            "scaling": ScalingAnswer(**asdict(realised.scaling)),
        }
    if playback is not None:
        sections = Sections(np.asarray(playback), rate_hz)
        of_playback = {"playback_sos": sections.rows.tolist(), "playback_peak_db": playback_peak_db(sections)}
    return ControllerAnswer(
        sos=realised.sections.rows.tolist(),
        sample_rate=rate_hz,
        latency_us=1e6 * controller.latency_s,
        number_format=number_format,
        max_gain_db=realised.max_gain_db,
        needed_number_format=needed_format,
        **of_format,
        **of_playback,
    )
