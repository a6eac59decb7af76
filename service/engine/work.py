"""Estimate the amount of work of a request."""

from __future__ import annotations

from dataclasses import dataclass

from prime_anc.hardware.realise import Target
from prime_anc.method.types import DesignOptions

# Work per feedback path of a filter: loops are evaluated on a fine grid, again for every trial of a limit.
FEEDBACK_WORK = 8
# Sections per unit of work; twice as many take four times as long.
SECTIONS_PER_WORK = 8
# Plants per unit of work of a controller.
PLANTS_PER_WORK = 3


@dataclass(frozen=True)
class HybridWork:
    """A design of filter and controller."""

    # Options of the filter.
    options: DesignOptions
    # Sections of the controller, and plants on which its loop has to be stable.
    n_sections: int
    n_plants: int


def work_of(request: DesignOptions | Target | HybridWork) -> float:
    """Estimate the work of a request, at least 1.

    Parameters
    ----------
    request
        Options of a design, the target of an export, or a design with a controller.

    Returns
    -------
    Multiples of a design for one condition without feedback, whatever its updates; of an export, multiples of one
    with SECTIONS_PER_WORK sections; of a design with a controller, multiples of one with as many sections for
    PLANTS_PER_WORK plants.
    """
    if isinstance(request, Target):
        return max(1.0, (request.n_sections / SECTIONS_PER_WORK) ** 2) if request.form == "sos" else 1.0
    if isinstance(request, HybridWork):
        of_fit = request.n_sections / SECTIONS_PER_WORK * (1 + request.n_plants / PLANTS_PER_WORK) / 2
        return max(1.0, of_fit * (1 + request.options.n_conditions) / 2)
    n = request.n_conditions
    n_filters = 1 + n if request.leave_one_out else 1
    return n_filters * ((1 + n) / 2 + FEEDBACK_WORK * request.n_feedbacks)
