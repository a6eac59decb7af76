"""Estimate the amount of work of a request."""

from __future__ import annotations

from hardware.realise import Target
from synthesis.types import DesignOptions

# Work per feedback path of a filter: loops are evaluated on a fine grid, again for every trial of a limit.
FEEDBACK_WORK = 8
# Sections per unit of work; twice as many take four times as long.
SECTIONS_PER_WORK = 8


def work_of(request: DesignOptions | Target) -> float:
    """Estimate the work of a request, at least 1.

    Parameters
    ----------
    request
        Options of a design, or the target of an export.

    Returns
    -------
    Multiples of a design for one condition without feedback, whatever its updates; of an export, multiples of one
    with SECTIONS_PER_WORK sections.
    """
    if isinstance(request, Target):
        return max(1.0, (request.n_sections / SECTIONS_PER_WORK) ** 2) if request.form == "sos" else 1.0
    n = request.n_conditions
    n_filters = 1 + n if request.leave_one_out else 1
    return n_filters * ((1 + n) / 2 + FEEDBACK_WORK * request.n_feedbacks)
