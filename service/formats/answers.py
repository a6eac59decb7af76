"""From designs to bytes: JSON bodies, binary bodies, and the headers that go with either."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from time import perf_counter
from typing import Any

import orjson

from model_store.store import ModelVersion
from service.designs import Design, Evaluation, Figures
from service.errors import Problem
from service.formats.side_lane import SideLane
from service.formats.wire import encode_taps
from synthesis.conventions import SAMPLE_RATE_HZ, STAGES
from synthesis.octave_bands import AMP_BANDS, nominal_hz

CORE_STAGES = ("path_ratio", "generate", "reconstruct", "refine")
BAND_CENTRE_HZ = [nominal_hz(n) for n in AMP_BANDS]

Warnings = Sequence[Mapping[str, str]]
Times = dict[str, float | None]
Outcome = tuple[Design, Warnings] | Problem
"""What became of one item among several."""


class Stopwatch:
    """Collects the times of one request: the loop's own here, the engine's when they are known."""

    def __init__(self) -> None:
        """Starts with the first byte handled."""
        self.began = self._decoding = perf_counter()
        self._decode_ms = 0.0

    def body_read(self) -> None:
        """Decoding begins."""
        self._decoding = perf_counter()

    def decoded(self) -> None:
        """The request is in plain values; what remains of `decode` is the engine's."""
        self._decode_ms = 1e3 * (perf_counter() - self._decoding)

    def times_ms(self, engine_ms: Mapping[str, float], encoding_began: float, ended: float | None = None) -> Times:
        """All of `timings_ms`, now (or when it `ended`) that the body is encoded."""
        now = perf_counter() if ended is None else ended
        times: Times = {stage: engine_ms.get(stage) for stage in STAGES}
        times["decode"] = self._decode_ms + engine_ms["decode"]
        times["encode"] = 1e3 * (now - encoding_began)
        core = [engine_ms[stage] for stage in CORE_STAGES if stage in engine_ms]
        times["core"] = sum(core) if core else None
        times["total"] = 1e3 * (now - self.began)
        return times


def design_json(design: Design, warnings: Warnings, watch: Stopwatch) -> tuple[bytes, Times]:
    """The JSON answer to a design. Taps are written so that reading them as float32 gives the same bits."""
    return _with_times(design_document(design, warnings), design.times_ms, watch)


def design_document(design: Design, warnings: Warnings) -> dict[str, Any]:
    """The JSON answer to a design, without its times."""
    return {
        "fir": design.taps,
        "sample_rate": SAMPLE_RATE_HZ,
        "sign": design.sign,
        "method": design.recipe.method,
        "model": model_document(design.model),
        "refinement": design.refinement,
        "prediction": prediction_document(design.figures),
        "warnings": warnings,
    }


async def items_json(outcomes: Sequence[Outcome], watch: Stopwatch, side_lane: SideLane) -> tuple[bytes, Times]:
    """The JSON answer to several requests, and the times of them all.

    What the loop did, it did for all items together, and each of their times says so; the engine's are those of
    the batch that the item was part of. A problem has no times.
    """
    began = perf_counter()
    documents = [each.document() if isinstance(each, Problem) else design_document(*each) for each in outcomes]
    bodies = await side_lane.dump(documents)
    designs = [None if isinstance(each, Problem) else each[0] for each in outcomes]
    ended = perf_counter()
    batches = {each.recipe: each.times_ms for each in designs if each}
    times = watch.times_ms(_added(batches.values()), began, ended)
    bodies = [
        body if design is None else _joined(body, watch.times_ms(design.times_ms, began, ended))
        for body, design in zip(bodies, designs, strict=True)
    ]
    return b'{"items":[' + b",".join(bodies) + b"]}", times


def _added(batches: Collection[Mapping[str, float]]) -> dict[str, float]:
    """The engine's times of a request that it designed in several batches, one after the other: each stage's sum;
    its wait was over when the first batch began."""
    added = {"decode": 0.0}
    for batch in batches:
        for stage, spent in batch.items():
            added[stage] = added.get(stage, 0.0) + spent
    if batches:
        added["queue"] = min(batch["queue"] for batch in batches)
    return added


def evaluation_json(evaluation: Evaluation, warnings: Warnings, watch: Stopwatch) -> tuple[bytes, Times]:
    """The JSON answer to an evaluation."""
    document = {"prediction": prediction_document(evaluation.figures), "warnings": warnings}
    return _with_times(document, evaluation.times_ms, watch)


def design_binary(design: Design, warnings: Warnings, watch: Stopwatch) -> tuple[bytes, Times, dict[str, str]]:
    """The binary answer to a design, and the headers that stand for the rest of the JSON one."""
    began = perf_counter()
    body = encode_taps(design.taps)
    headers = {
        "X-Model-Digest": design.model.digest,
        "X-Refine-Applied": str(design.refinement["applied"]),
        "X-Predicted-NR-dB": f"{design.figures.mean_noise_reduction_db:.4f}",
        "X-Predicted-AMP-dB": f"{design.figures.amplification_db:.4f}",
    }
    if warnings:
        headers["X-Warnings"] = ", ".join(each["code"] for each in warnings)
    return body, watch.times_ms(design.times_ms, began), headers


def server_timing(times: Mapping[str, float | None]) -> str:
    """The `Server-Timing` header: the same figures, in milliseconds; a stage without one is left out."""
    return ", ".join(f"{name};dur={spent:.4f}" for name, spent in times.items() if spent is not None)


def model_document(version: ModelVersion) -> dict[str, Any]:
    """Which model made an answer."""
    return {"name": version.name, "version": version.version, "digest": version.digest}


def prediction_document(figures: Figures) -> dict[str, Any]:
    """The `prediction` of an answer."""
    return {
        "basis": figures.basis,
        "band_centre_hz": BAND_CENTRE_HZ,
        "noise_reduction_db": figures.noise_reduction_db,
        "mean_noise_reduction_db": figures.mean_noise_reduction_db,
        "amplification_db": figures.amplification_db,
        "wide_amplification_db": figures.wide_amplification_db,
        "out_of_band_db": {"low": figures.out_of_band_low_db, "high": figures.out_of_band_high_db},
        "max_gain_db": figures.max_gain_db,
        "control_rms": figures.control_rms,
    }


def _with_times(document: dict[str, Any], engine_ms: Mapping[str, float], watch: Stopwatch) -> tuple[bytes, Times]:
    """Encode, then append the times: they hold how long the encoding took, so they come last."""
    began = perf_counter()
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    times = watch.times_ms(engine_ms, began)
    return _joined(body, times), times


def _joined(body: bytes, times: Times) -> bytes:
    return body[:-1] + b',"timings_ms":' + orjson.dumps(times) + b"}"
