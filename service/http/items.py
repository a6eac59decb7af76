"""Several designs in one request: one batch per recipe, and an outcome of its own for each item."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.admission.deadlines import Gone
from service.designs import Design, Ear, Recipe
from service.engine.engine import Engine
from service.errors import Problem, from_domain
from service.formats.answers import Outcome
from service.http.advice import advise


class Item(NamedTuple):
    """One request among several: what is asked for, and for which ear."""

    recipe: Recipe
    ear: Ear


async def design_items(
    engine: Engine, items: Sequence[Item | Problem], due: float = math.inf, gone: Gone | None = None
) -> list[Outcome]:
    """Design the items, in order; what is a Problem already stays one. due, gone: as for `Engine.design`.

    Items of one recipe are designed as one batch, and the batches one after the other. A batch that is refused is
    refused to its items alone; where that leaves no item with a filter, the request as a whole is refused, so that
    `Retry-After` reaches the client. Raises Problem then, and defects.
    """
    engine.require_ready()
    batches: dict[Recipe, list[int]] = {}
    for place, item in enumerate(items):
        if isinstance(item, Item):
            batches.setdefault(item.recipe, []).append(place)
    outcomes: dict[int, Outcome] = {}
    designing = [_design(engine, recipe, items, places, due, gone) for recipe, places in batches.items()]
    for found in await asyncio.gather(*designing):
        outcomes |= found
    outcomes |= {place: item for place, item in enumerate(items) if isinstance(item, Problem)}
    answers = [outcomes[place] for place in range(len(items))]
    problems = [each for each in answers if isinstance(each, Problem)]
    refusals = [each for each in problems if each.status == 503]
    if refusals and len(problems) == len(answers):
        raise refusals[0]
    return answers


async def _design(
    engine: Engine,
    recipe: Recipe,
    items: Sequence[Item | Problem],
    places: Sequence[int],
    due: float,
    gone: Gone | None,
) -> Mapping[int, Outcome]:
    """One batch: what became of the items in `places`."""
    ears = [item.ear for place in places if isinstance(item := items[place], Item)]
    try:
        designs = await engine.design(recipe, ears, due, gone)
    except Exception as error:
        return dict.fromkeys(places, _problem(error))
    return {
        place: (design, advise(ear, design.figures, design.replaces))
        if isinstance(design, Design)
        else _problem(design)
        for place, ear, design in zip(places, ears, designs, strict=True)
    }


def _problem(error: Exception) -> Problem:
    """The error as clients see it; a defect is raised again."""
    problem = error if isinstance(error, Problem) else from_domain(error)
    if problem is None:
        raise error
    return problem
