"""What the design process does: loads models, designs with them, says what came out."""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from model_store.store import ModelStore, ModelVersion
from service.designs import Basis, Design, Ear, Evaluation, Figures, Recipe, Sign
from service.engine.resident import ResidentModel
from service.threads import prepare_thread, share_one_heap
from synthesis.errors import SynthesisError

Lane = Literal["designs", "loads"]
"""Each is asked by one thread of the service and has one here: to load does not hold up designs."""
LANES: tuple[Lane, ...] = ("designs", "loads")

NICENESS = 5
"""Where cores are short the event loop comes first: a refusal takes a fraction of a millisecond, and with it the
service's answers to everybody. Long JSON yields to both (`formats/side_process.py`)."""

Models = dict[int, ResidentModel]


Plain = tuple[str, bytes]
"""An array of one dimension: its kind and its bytes."""


class Asked(NamedTuple):
    """An Ear in plain values, which cross a pipe in a fraction of the time that arrays and classes take."""

    primary: Plain
    secondary: Plain
    coherence: Plain | None
    reference_psd: Plain | None
    sign: Sign
    max_gain_db: float


class Made(NamedTuple):
    """A Design or an Evaluation likewise, without what the service knows. taps: None for an evaluation."""

    basis: Basis
    figures: Plain
    times_ms: dict[str, float]
    taps: Plain | None = None
    method: str = ""
    refinement: dict[str, Any] | None = None
    replaces: str | None = None


def run(lanes: Sequence[Connection[Any, Any]], not_ours: Sequence[Connection[Any, Any]], n_threads: int) -> None:
    """In the process: answer until the service hangs up, which it does when it ends, however it ends.

    not_ours: the service's ends, where they have come along. n_threads: of one design.
    """
    for end in not_ours:
        end.close()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which are the service's, though all are sent them
        signal.signal(each, signal.SIG_IGN)
    share_one_heap()
    os.nice(NICENESS)
    models: Models = {}
    designs, loads = lanes
    threading.Thread(target=_serve, args=(loads, models, 1), name="load", daemon=True).start()
    _serve(designs, models, n_threads)


def _serve(lane: Connection[Any, Any], models: Models, n_threads: int) -> NoReturn:
    """Until the service hangs up; the process ends with it, whatever the other lane is at. So it does where a
    question cannot be read: nobody is to wait for an answer that never comes."""
    try:
        _answer(lane, models, n_threads)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _answer(lane: Connection[Any, Any], models: Models, n_threads: int) -> None:
    prepare_thread(n_threads)
    with suppress(EOFError, OSError):  # the service has hung up
        while True:
            freed, task, key, given = lane.recv()
            for each in freed:
                models.pop(each, None)
            try:
                answer = TASKS[task](models, key, *given)
            except Exception as error:
                answer = _portable(error)
            lane.send(answer)
            del given, answer  # nothing is kept until the next one


def _load(models: Models, key: int, store: ModelStore, version: ModelVersion, device: torch.device) -> object:
    model = models[key] = ResidentModel.load(store, version, device)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()  # modules and the first model stay: the collector need not look through them again and again
    return model.golden_ear, model.scored_noise_reduction_db, model.tensor_bytes()


def _check(models: Models, key: int) -> object:
    return models[key].check(), models[key].tensor_bytes()


def _design(models: Models, key: int, recipe: Recipe, ears: Sequence[Asked]) -> list[Made | SynthesisError]:
    return [_made(each) for each in models[key].design(recipe, [_ear(each) for each in ears])]


def _evaluate(
    models: Models, key: int, ears: Sequence[Asked], filters: Sequence[Plain]
) -> list[Made | SynthesisError]:
    given = [_ear(each) for each in ears], [_array(each) for each in filters]
    return [_made(each) for each in models[key].evaluate(*given)]


TASKS: dict[str, Callable[..., object]] = {
    "load": _load,
    "check": _check,
    "design": _design,
    "evaluate": _evaluate,
}


def asked(ear: Ear) -> Asked:
    """In the service: an ear as the process is sent it."""
    primary, secondary = plain(ear.primary), plain(ear.secondary)
    coherence = None if ear.coherence is None else plain(ear.coherence)
    reference_psd = None if ear.reference_psd is None else plain(ear.reference_psd)
    return Asked(primary, secondary, coherence, reference_psd, ear.sign, ear.max_gain_db)


def _ear(given: Asked) -> Ear:
    primary, secondary, coherence, reference_psd = (each and _array(each) for each in given[:4])
    assert primary is not None
    assert secondary is not None
    return Ear(primary, secondary, coherence, reference_psd, given.sign, given.max_gain_db)


def _made(answer: Design | Evaluation | SynthesisError) -> Made | SynthesisError:
    if isinstance(answer, SynthesisError):
        return answer
    figures = answer.figures
    made = Made(figures.basis, plain(figures.row()), answer.times_ms)
    if isinstance(answer, Evaluation):
        return made
    return made._replace(
        taps=plain(answer.taps),
        method=answer.recipe.method,
        refinement=answer.refinement,
        replaces=answer.replaces,
    )


def design(
    made: Made | SynthesisError, recipe: Recipe, version: ModelVersion, sign: Sign
) -> Design | SynthesisError:
    """In the service: the design again, of what was asked of that version for an ear of that sign."""
    if isinstance(made, SynthesisError):
        return made
    assert made.taps is not None
    assert made.refinement is not None
    return Design(
        version,
        replace(recipe, method=made.method),
        sign,
        _array(made.taps),
        made.refinement,
        Figures.of(_array(made.figures), made.basis),
        made.times_ms,
        made.replaces,
    )


def evaluation(made: Made | SynthesisError, version: ModelVersion) -> Evaluation | SynthesisError:
    """In the service: the evaluation again."""
    if isinstance(made, SynthesisError):
        return made
    return Evaluation(version, Figures.of(_array(made.figures), made.basis), made.times_ms)


def plain(values: NDArray[Any]) -> Plain:
    """An array's kind and bytes."""
    return values.dtype.str, values.tobytes()


def _array(given: Plain) -> NDArray[Any]:
    kind, content = given
    return np.frombuffer(bytearray(content), kind)  # which may be written to


def _portable(error: Exception) -> Exception:
    """An error that says the same, and where it came from, which no trace takes along: itself where it is made of
    its message alone, as what can be wrong with a design."""
    if not isinstance(error, SynthesisError):
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note("In the design process:\n" + traceback.format_exc())
    return error
