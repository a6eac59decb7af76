"""Answers computed in this process, for the command and the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import orjson

from model_store.errors import InvalidName, ModelNotFound
from model_store.listing import published
from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.answers import Answer, ModelReference, document
from prime_anc.client.client import Client, Fields
from prime_anc.client.errors import Refused, from_document
from prime_anc.client.wire import RATE_HZ
from prime_anc.method.errors import Interrupted, interruptible
from prime_anc.method.types import Fallback, Model
from prime_anc.requests.bodies import DesignBody, EvaluateBody, ExportBody, HybridBody, SynthesisBody
from prime_anc.requests.controllers import put_published
from prime_anc.requests.errors import RequestError
from prime_anc.requests.reading import body_fields, validate
from prime_anc.requests.strict import StrictModel
from prime_anc.requests.takes import CalibrationBody
from prime_anc.requests.verification import VerifyBody
from prime_anc.tasks.calibrate import calibrate
from prime_anc.tasks.design import design, evaluate
from prime_anc.tasks.errors import request_error
from prime_anc.tasks.export import FilterFile, export
from prime_anc.tasks.hybrid import hybrid
from prime_anc.tasks.models import LoadedModel, require_digest, split_reference
from prime_anc.tasks.verify import verify

DEFAULT_MODEL = "generic"


def _calibrated(body: CalibrationBody, loaded: LoadedModel) -> Answer:
    return calibrate(body, loaded.reference, loaded.model.parameters)


# The bodies and tasks of the addresses.
TASKS: dict[str, tuple[type[StrictModel], Callable[..., Answer | FilterFile]]] = {
    "/synthesize": (SynthesisBody, design),
    "/refine": (DesignBody, design),
    "/hybrid": (HybridBody, hybrid),
    "/evaluate": (EvaluateBody, evaluate),
    "/calibrate": (CalibrationBody, _calibrated),
    "/verify": (VerifyBody, verify),
    "/export": (ExportBody, export),
}


class LocalClient(Client):
    """A client whose requests are answered in this process, with the models of a store and the bundled ones."""

    def __init__(self, store: str | None = None) -> None:
        """Name a folder or URL of models; they are loaded when they are first used."""
        self._store = ModelStore(store or DEFAULT_ROOT)
        self._loaded: dict[str, LoadedModel] = {}

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def is_ready(self) -> bool:
        """Return True."""
        return True

    def ask(self, path: str, body: Fields | None = None, deadline_ms: float | None = None) -> httpx.Response:
        """Answer a request as a service does; errors as `Client.ask`, but those of a connection."""
        if body is None:
            return httpx.Response(200, content=orjson.dumps(published(self._store, DEFAULT_MODEL)))
        due = math.inf if deadline_ms is None else perf_counter() + deadline_ms / 1e3

        def check() -> None:
            if perf_counter() > due:
                raise Interrupted("the deadline passed before the work was done; allow more time, or ask for less")

        try:
            with interruptible(check):
                answer = self._answer(path, {"sample_rate": RATE_HZ, **body})
        except (ModelNotFound, InvalidName) as error:
            raise _refused(RequestError("unknown-model", str(error), "model")) from error
        except Exception as error:
            if (found := request_error(error)) is None:
                raise
            raise _refused(found) from error
        if isinstance(answer, FilterFile):
            return httpx.Response(200, content=answer.content, headers={"Content-Type": answer.media_type})
        content = orjson.dumps(document(answer), option=orjson.OPT_SERIALIZE_NUMPY)
        return httpx.Response(200, content=content, headers={"Content-Type": "application/json"})

    def _answer(self, path: str, request: Mapping[str, Any]) -> Answer | FilterFile:
        kind, task = TASKS[path]
        fields = body_fields({name: _as_sent(value) for name, value in request.items()}, kind)
        put_published(fields, kind, self._store.controller)
        body = validate(kind, fields)
        return task(body, self._model(getattr(body, "model", None) or DEFAULT_MODEL))

    def _model(self, reference: str) -> LoadedModel:
        """Return a model, loaded and checked at its first use."""
        name, digest = split_reference(reference)
        if name not in self._loaded:
            version = self._store.resolve(name)
            checkpoint = self._store.load(str(version))
            model = Model.on("cpu", checkpoint.parameters)
            checkpoint.golden.check(model)
            found = ModelReference(name=version.name, version=version.version, digest=version.digest)
            self._loaded[name] = LoadedModel(found, model, Fallback())
        require_digest(digest, self._loaded[name].reference)
        return self._loaded[name]


def _as_sent(value: Any) -> Any:
    """Return a value as a request in JSON or tensors has it: arrays in single precision, no tuples."""
    if isinstance(value, Mapping):
        return {name: _as_sent(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_as_sent(item) for item in value]
    if isinstance(value, np.ndarray):
        with np.errstate(over="ignore"):  # what is infinite is refused by its field
            return value.astype(np.complex64 if np.iscomplexobj(value) else np.float32)
    return value.item() if isinstance(value, np.generic) else value


def _refused(error: RequestError) -> Refused:
    """Return the client's error for that of a request."""
    status = {"unknown-model": 404, "deadline-passed": 503}.get(error.code, 422)
    return from_document(status, {"type": error.code, "detail": error.detail, "field": error.field})
