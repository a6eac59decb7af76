"""One model in memory: its version, its golden case, and its computations for the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from model_store.checkpoint import Checkpoint
from model_store.store import ModelVersion
from prime_anc.answers import ModelReference
from prime_anc.method.design import design_all
from prime_anc.method.errors import DeviceLost, SynthesisError
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.method.types import Design, DesignOptions, Fallback, Model, Problem
from prime_anc.tasks.models import LoadedModel

logger = logging.getLogger(__name__)


class ResidentModel:
    """A checkpoint on its device; as thread-safe as its backend."""

    # Designs all problems as one batch (`design_all`). A rebuilt model has a new one.
    design: Callable[[Sequence[Problem], DesignOptions], list[Design | SynthesisError]]

    def __init__(self, version: ModelVersion, checkpoint: Checkpoint, device: str, fallback: Fallback) -> None:
        """Load the model; GoldenMismatch if the backend does not reproduce the stored filters."""
        self.version = version
        self.reference = ModelReference(name=version.name, version=version.version, digest=version.digest)
        self.manifest = checkpoint.manifest
        self.parameters = checkpoint.parameters
        self._device = device
        self._fallback = fallback
        self.use(Model.on(device, self.parameters))
        # Whether it passed its last check.
        self.is_sound = True
        self._golden = checkpoint.golden
        self.golden_problem = self._golden.problem
        kind = str(self.manifest.generator.get("kind"))
        # Held-out scores of its designs (dB), by number of updates; None if missing in the manifest.
        self.scored_noise_reduction_db = [
            self.manifest.scores.noise_reduction_db(kind, n_updates) for n_updates in range(MAX_UPDATES + 1)
        ]
        # Size of its weights.
        self.n_bytes = sum(weight.nbytes for weight in self.parameters.weights.values())
        self.check()

    def use(self, model: Model) -> None:
        """Design with this model from now on; designs that are running finish on the old one."""
        self.model = model
        self.loaded = LoadedModel(self.reference, model, self._fallback)
        self.design = partial(design_all, model=model, fallback=self._fallback)

    def check(self) -> float:
        """Design the golden case without and with an update, without the fallback; return the time (s).

        Raises
        ------
        GoldenMismatch
            The stored filters are not reproduced.
        SynthesisError
            A design fails.
        """
        began = perf_counter()
        self._golden.check(self.model)
        return perf_counter() - began

    def recheck(self) -> float:
        """Check the model; on failure rebuild its backend and check again.

        A new backend shares only the checkpoint's numbers with the old one, so that earlier designs cannot affect it.

        Returns
        -------
        float
            Time (s) of the successful check.

        Raises
        ------
        Exception
            The error of `check` with the new backend; `is_sound` is then False. DeviceLost and MemoryError at once,
            since they do not concern the filters.
        """
        try:
            spent_s = self.check()
        except (DeviceLost, MemoryError):
            raise
        except Exception as error:
            logger.error("Model %s fails its golden case; its backend is rebuilt: %s", self.version, error)
            try:  # a GPU compiles for minutes, in which the process has to live
                self.use(Model.on(self._device, self.parameters))
            finally:
                self.is_sound = False
            spent_s = self.check()
        self.is_sound = True
        return spent_s
