"""The client: one request, one answer, and retries within a time limit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, NamedTuple, TypeVar

import httpx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import Calibration, Sign, Take, read_calibration
from prime_anc_client.errors import NotReached, Refused, UnknownAnswer, from_answer, from_document
from prime_anc_client.transport import Transport
from prime_anc_client.verification import Recording, Verification, read_verification
from prime_anc_client.wire import (
    Ceiling,
    condition_document,
    document,
    encode,
    encode_json,
    encode_takes,
    joint_document,
    list_document,
    take_document,
)

_BINARY, _JSON = "application/octet-stream", "application/json"
_DEFAULT_RETRY_S = 1.0
_N_TAPS = 2048
_KEY = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]+")

_MAX_DEADLINE_MS = 60_000.0
_CALIBRATION_DEADLINE_MS = 30_000.0
"""The service's own for a calibration that asks for none."""

_Read = TypeVar("_Read")


@dataclass(frozen=True, eq=False)
class Design:
    """A filter and what the service predicts of it.

    taps: float32 [2048], causal, 48 kHz, in the sign asked for, read-only. model_digest: of the model that made it.
    n_applied: Gauss-Newton updates. noise_reduction_db: predicted mean, 50 Hz to 5 kHz, positive is quieter.
    amplification_db: predicted mean over bands of how much louder they get. warnings: codes. timings_ms: by stage.
    conditions, loop: of `Client.refine_conditions`; the other figures are weighted means over the conditions then.
    """

    taps: NDArray[np.float32]
    model_digest: str
    n_applied: int
    noise_reduction_db: float
    amplification_db: float
    warnings: tuple[str, ...]
    timings_ms: dict[str, float]
    conditions: tuple[ConditionEffect, ...] = ()
    loop: Loop | None = None


@dataclass(frozen=True)
class ConditionEffect:
    """What a filter is predicted to do in one of several conditions, dB. left_out_noise_reduction_db: what one
    designed on the others does there, with `leave_one_out`."""

    label: str
    noise_reduction_db: float
    amplification_db: float
    left_out_noise_reduction_db: float | None = None


@dataclass(frozen=True)
class Loop:
    """The loop through the feedback path; of several conditions, the worst of each figure. loss_db: mean noise
    reduction that its margins cost."""

    stable: bool
    gain_margin_db: float
    phase_margin_deg: float
    peak_db: float
    peak_hz: float
    loss_db: float


@dataclass(frozen=True, eq=False)
class Condition:
    """One seating, direction or way of wearing that a filter shall serve.

    primary, secondary, coherence: as in `Client.synthesize`; a calibration replaces all three. feedback:
    loudspeaker to outer microphone, of the same kind as the other paths. weight: above 0, relative to the others.
    """

    primary: ArrayLike | Calibration
    secondary: ArrayLike | None = None
    coherence: ArrayLike | None = None
    feedback: ArrayLike | None = None
    weight: float = 1.0
    label: str = ""


@dataclass(frozen=True, eq=False)
class Item:
    """One ear of several in a request; the fields are the arguments of `Client.synthesize`."""

    primary: ArrayLike | Calibration
    secondary: ArrayLike | None = None
    coherence: ArrayLike | None = None
    reference_psd: ArrayLike | None = None
    model: str | None = None
    method: str = "prime"
    sign: Sign | None = None
    max_gain_db: Ceiling | None = None


class Client:
    """A connection to one service, kept until it is closed. Not thread-safe."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        retry_for_s: float = 30.0,
    ) -> None:
        """url: of the service. uds: Unix socket that it listens on, instead of the address in the URL.

        A request is repeated after a 503 (after the seconds of its `Retry-After`), after a refused connection
        (after one second) and after a broken connection (at once: a design changes nothing), as long as the next
        attempt begins within `retry_for_s` of the first. timeout_s: of one attempt, from connecting to the last
        byte of the answer, in addition to the deadline (30 s for a calibration without one). Raises ValueError for
        a key that does not fit into a header.
        """
        if api_key is not None and not _KEY.fullmatch(api_key):
            raise ValueError("api_key: it is empty or contains white space or control characters")
        headers = {"Content-Type": _BINARY, "Accept": _BINARY}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        # A key may hold any letters; the service compares its UTF-8 bytes.
        self._http = httpx.Client(
            base_url=url,
            headers=httpx.Headers(headers, encoding="utf-8"),
            timeout=timeout_s,
            transport=Transport(None if uds is None else fspath(uds)),
        )
        self._timeout_s = timeout_s
        self._retry_for_s = retry_for_s

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the service is ready to design; False too where it does not answer."""
        try:
            answer = self._http.get("/health/ready", headers={"Accept": _JSON})
            return answer.status_code == 200 and _parse(_read_readiness, answer)
        except (httpx.RequestError, UnknownAnswer):
            return False

    def synthesize(
        self,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        coherence: ArrayLike | None = None,
        reference_psd: ArrayLike | None = None,
        model: str | None = None,
        method: str = "prime",
        sign: Sign | None = None,
        max_gain_db: Ceiling | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """Design a filter without updates.

        primary, secondary: impulse responses (real, 1 to 32768 samples at 48 kHz) or one-sided spectra (complex,
        n_fft / 2 + 1 bins). coherence: per bin, 0 to 1. A calibration replaces all three. reference_psd: of the
        expected noise, mean square per bin; default: the model's own. It is sent in JSON, which takes some
        milliseconds more. sign: of the signal chain; default: the calibration's, else `minus`. model: `name` or
        `name@version`. method: `prime` or another that the service has; it refuses others and names its own.
        max_gain_db: ceiling on |W|, a number or a curve {"frequency_hz": .., "gain_db": ..}. deadline_ms: after
        which the answer is no longer needed.
        Raises ValueError for arrays of a wrong shape, and ClientError.
        """
        item = Item(primary, secondary, coherence, reference_psd, model, method, sign, max_gain_db)
        return self._design("/synthesize", item, {}, deadline_ms)

    def refine(
        self,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        k: int = 3,
        profile: str = "fast",
        coherence: ArrayLike | None = None,
        reference_psd: ArrayLike | None = None,
        model: str | None = None,
        method: str = "prime",
        sign: Sign | None = None,
        max_gain_db: Ceiling | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """The same with up to `k` Gauss-Newton updates, 0 to 8.

        profile: `fine` uses a finer frequency grid than `fast`; the service chooses it by itself for responses of
        more than 8192 samples and spectra of more than 4097 bins.
        """
        item = Item(primary, secondary, coherence, reference_psd, model, method, sign, max_gain_db)
        return self._design("/refine", item, _present(k=k, profile=profile), deadline_ms)

    def refine_conditions(
        self,
        conditions: Sequence[Condition],
        *,
        k: int = 3,
        profile: str = "fast",
        leave_one_out: bool = False,
        latency_samples: float = 0.0,
        min_gain_margin_db: float | None = None,
        min_phase_margin_deg: float | None = None,
        reference_psd: ArrayLike | None = None,
        model: str | None = None,
        method: str = "prime",
        sign: Sign | None = None,
        max_gain_db: Ceiling | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """One filter for 1 to 16 conditions, with what it does in each.

        leave_one_out: also design on all other conditions for each one. latency_samples: delay of the signal chain
        that no secondary path holds. min_gain_margin_db, min_phase_margin_deg: of the loops through the feedback
        paths; default 6 dB and 30 degrees. sign: default: that of the calibrations, else `minus`. The other
        arguments are those of `refine`. Raises ValueError for arrays of a wrong shape, and ClientError.
        """
        paths = [_paths_of(Item(each.primary, each.secondary, each.coherence, sign=sign)) for each in conditions]
        signs = {each.sign for each in paths}
        if len(signs) > 1:
            raise ValueError("conditions: calibrations of both signs; give `sign`, or calibrate with one")
        documents = [
            condition_document(*own[:4], each.feedback, each.weight, each.label)
            for each, own in zip(conditions, paths, strict=True)
        ]
        body = joint_document(
            documents,
            reference_psd,
            max_gain_db,
            latency_samples=latency_samples,
            min_gain_margin_db=min_gain_margin_db,
            min_phase_margin_deg=min_phase_margin_deg,
            model=model,
            method=method,
            sign=next(iter(signs), "minus"),
        )
        options = _present(k=k, profile=profile, leave_one_out="true" if leave_one_out else None)
        answer = self._post("/refine", encode_json(body), options, deadline_ms, content_type=_JSON, accept=_JSON)
        return _parse(lambda found: _read_design(json.loads(found.content)), answer)

    def synthesize_items(
        self, items: Sequence[Item], *, deadline_ms: float | None = None
    ) -> list[Design | Refused]:
        """Design 1 to 16 filters without updates in one request; the answers are in the order of the items.

        A refused item is not raised but returned in its place; if all are refused for lack of time, the request
        raises Unavailable. Sent as one JSON body, of at most 12 MiB by default. Raises ValueError for arrays of a
        wrong shape, before anything is sent, and ClientError.
        """
        return self._design_items("/synthesize", items, {}, deadline_ms)

    def refine_items(
        self, items: Sequence[Item], *, k: int = 3, profile: str = "fast", deadline_ms: float | None = None
    ) -> list[Design | Refused]:
        """The same with up to `k` Gauss-Newton updates for each, 0 to 8."""
        return self._design_items("/refine", items, _present(k=k, profile=profile), deadline_ms)

    def calibrate(
        self,
        takes: Sequence[Take],
        *,
        model: str | None = None,
        sign: Sign = "minus",
        n_windows: int | None = None,
        deadline_ms: float | None = None,
    ) -> Calibration:
        """Estimate an ear's paths from 2 to 64 takes, at least one with gain 0 and one without, and judge them.

        model: whose support listeners the paths are compared with. sign: of the signal chain that played
        the gain. n_windows: windows of 8192 samples used of each take, 1 to 64. A calibration that did not pass is
        returned too: check its verdict before using it. Raises ValueError for signals of a wrong shape, and
        ClientError.
        """
        options = _present(model=model, sign=sign, n_windows=n_windows)
        # The binary answer holds only the verdict's codes.
        answer = self._post("/calibrate", encode_takes(takes), options, deadline_ms, accept=_JSON)
        return _parse(_read_calibration, answer)

    def verify(
        self,
        taps: ArrayLike,
        off: Sequence[Recording],
        on: Sequence[Recording],
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        coherence: ArrayLike | None = None,
        model: str | None = None,
        sign: Sign | None = None,
        deadline_ms: float | None = None,
    ) -> Verification:
        """What a filter does on the ear, from recordings with it off and on, and what is off.

        taps: float32 [2048], in the sign of the signal chain, as `Design.taps`. primary, secondary, coherence: what
        the filter was designed for; a calibration replaces all three. Raises ValueError for arrays of a wrong
        shape, and ClientError.
        """
        paths = _paths_of(Item(primary, secondary, coherence, sign=sign))
        takes = [take_document(state, *each) for state, part in (("off", off), ("on", on)) for each in part]
        body = document(*paths[:3], model=model, sign=paths.sign, fir=list_document("taps", taps), takes=takes)
        answer = self._post("/verify", encode_json(body), {}, deadline_ms, content_type=_JSON, accept=_JSON)
        return _parse(lambda found: read_verification(found.content), answer)

    def _design(self, path: str, item: Item, options: dict[str, str], deadline_ms: float | None) -> Design:
        if item.reference_psd is not None:
            body = encode_json(_json_item(item))
            return _parse(_read_binary, self._post(path, body, options, deadline_ms, content_type=_JSON))
        paths = _paths_of(item)
        asked = _present(model=item.model, method=item.method, sign=paths.sign, max_gain_db=item.max_gain_db)
        return _parse(_read_binary, self._post(path, encode(*paths[:4]), options | asked, deadline_ms))

    def _design_items(
        self, path: str, items: Sequence[Item], options: dict[str, str], deadline_ms: float | None
    ) -> list[Design | Refused]:
        body = encode_json({"items": [_json_item(item) for item in items]})
        answer = self._post(path, body, options, deadline_ms, content_type=_JSON, accept=_JSON)
        found = _parse(_read_items, answer)
        if len(found) != len(items):
            raise UnknownAnswer(f"{len(found)} answers came for {len(items)} items")
        return found

    def _post(
        self,
        path: str,
        body: bytes,
        options: dict[str, str],
        deadline_ms: float | None,
        content_type: str = _BINARY,
        accept: str = _BINARY,
    ) -> httpx.Response:
        headers = _present(**{"X-Deadline-Ms": deadline_ms, "Content-Type": content_type, "Accept": accept})
        if deadline_ms is None:
            deadline_ms = _CALIBRATION_DEADLINE_MS if path in ("/calibrate", "/verify") else 0.0
        timeout_s = self._timeout_s + min(max(0.0, float(deadline_ms)), _MAX_DEADLINE_MS) / 1e3
        return self._send(
            self._http.build_request("POST", path, content=body, params=options, headers=headers, timeout=timeout_s)
        )

    def _send(self, request: httpx.Request) -> httpx.Response:
        """The successful answer, after retries within the time limit."""
        deadline = time.monotonic() + self._retry_for_s
        has_broken = False
        while True:
            try:
                answer = self._http.send(request)
            except httpx.TimeoutException as error:
                raise NotReached(f"no answer in time: {error}") from error
            except httpx.DecodingError as error:
                raise UnknownAnswer(f"the body does not match its Content-Encoding: {error}") from error
            except httpx.TransportError as error:
                # The service may have closed a kept connection; if a new one breaks too, wait before the next.
                is_new = has_broken or isinstance(error, httpx.ConnectError)
                wait_s, has_broken = _DEFAULT_RETRY_S if is_new else 0.0, True
                if _is_permanent(error) or time.monotonic() + wait_s > deadline:
                    raise NotReached(f"no service answers: {error}") from error
            else:
                if answer.status_code == 200:
                    return answer
                wait_s = _retry_after_s(answer)
                if answer.status_code != 503 or time.monotonic() + wait_s > deadline:
                    raise from_answer(answer.status_code, answer.content)
            time.sleep(wait_s)


class _Paths(NamedTuple):
    primary: ArrayLike
    secondary: ArrayLike
    coherence: ArrayLike | None
    uncertainty: ArrayLike | None
    sign: Sign


def _paths_of(item: Item) -> _Paths:
    """An item's paths and the sign of its signal chain."""
    if isinstance(item.primary, Calibration):
        if item.secondary is not None or item.coherence is not None:
            raise ValueError("secondary, coherence: a calibration holds them already; leave them out")
        known = item.primary
        return _Paths(known.primary, known.secondary, known.coherence, known.uncertainty, item.sign or known.sign)
    if item.secondary is None:
        raise ValueError("secondary: it is missing; give both paths or a calibration")
    return _Paths(item.primary, item.secondary, item.coherence, None, item.sign or "minus")


def _json_item(item: Item) -> dict[str, object]:
    """An item in JSON."""
    paths = _paths_of(item)
    return document(
        paths.primary,
        paths.secondary,
        paths.coherence,
        paths.uncertainty,
        item.reference_psd,
        model=item.model,
        method=item.method,
        sign=paths.sign,
        max_gain_db=item.max_gain_db,
    )


def _present(**options: object) -> dict[str, str]:
    """Options that are not None, as text."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    """Floats without an exponent, which the service refuses in headers and queries."""
    if isinstance(value, Mapping):  # a ceiling over frequency
        points = zip(*(np.atleast_1d(value[name]) for name in ("frequency_hz", "gain_db")), strict=True)
        return ",".join(f"{_text(float(hz))}:{_text(float(db))}" for hz, db in points)
    if isinstance(value, float | np.floating):
        return np.format_float_positional(float(value), trim="-")
    return str(value)


def _is_permanent(error: httpx.TransportError) -> bool:
    """Whether retrying is useless: a wrong URL or header, an unknown host, an untrusted certificate.

    A refused connection or a missing Unix socket may be a service that is starting.
    """
    if not isinstance(error, httpx.ConnectError):
        return isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    cause: BaseException = error
    while following := cause.__cause__ or cause.__context__:
        cause = following
    return not isinstance(cause, ConnectionError | FileNotFoundError)


def _retry_after_s(answer: httpx.Response) -> float:
    """Seconds; 1 where the header is missing or a date, as a proxy's may be."""
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else _DEFAULT_RETRY_S


def _parse(read: Callable[[httpx.Response], _Read], answer: httpx.Response) -> _Read:
    """What `read` returns for an answer of status 200; UnknownAnswer where the answer is not the service's."""
    try:
        return read(answer)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        found = f"{answer.headers.get('Content-Type', 'no media type')} {answer.content[:80]!a}"
        raise UnknownAnswer(f"an answer of status 200 does not come from the service: {found}") from error


def _read_readiness(answer: httpx.Response) -> bool:
    return bool(json.loads(answer.content)["status"] == "ready")


def _read_calibration(answer: httpx.Response) -> Calibration:
    return read_calibration(answer.content)


def _read_items(answer: httpx.Response) -> list[Design | Refused]:
    return [_read_item(each) for each in json.loads(answer.content)["items"]]


def _read_binary(answer: httpx.Response) -> Design:
    """The taps from the body, the rest from the headers."""
    headers = answer.headers
    timings = (part.split(";dur=") for part in headers["Server-Timing"].split(", "))
    return Design(
        taps=_checked_taps(np.frombuffer(answer.content, "<f4")),
        model_digest=headers["X-Model-Digest"],
        n_applied=int(headers["X-Refine-Applied"]),
        noise_reduction_db=float(headers["X-Predicted-NR-dB"]),
        amplification_db=float(headers["X-Predicted-AMP-dB"]),
        warnings=tuple(filter(None, headers.get("X-Warnings", "").split(", "))),
        timings_ms={name: float(spent) for name, spent in timings},
    )


def _read_item(found: dict[str, Any]) -> Design | Refused:
    """One of several answers in JSON."""
    if "fir" not in found:
        problem = from_document(found["status"], found)
        # `primary.impulse_response` in JSON is the argument `primary`.
        problem.field = problem.field and problem.field.split(".")[0]
        return problem
    return _read_design(found)


def _read_design(found: dict[str, Any]) -> Design:
    """A filter in JSON."""
    taps = _checked_taps(np.array(found["fir"], np.float32))
    taps.flags.writeable = False
    prediction = found["prediction"]
    return Design(
        taps=taps,
        model_digest=found["model"]["digest"],
        n_applied=found["refinement"]["applied"],
        noise_reduction_db=prediction["mean_noise_reduction_db"],
        amplification_db=prediction["amplification_db"],
        warnings=tuple(each["code"] for each in found["warnings"]),
        timings_ms={name: spent for name, spent in found["timings_ms"].items() if spent is not None},
        conditions=tuple(
            ConditionEffect(
                each["label"],
                each["mean_noise_reduction_db"],
                each["amplification_db"],
                each.get("left_out_noise_reduction_db"),
            )
            for each in prediction.get("conditions", ())
        ),
        loop=Loop(**found["loop"]) if "loop" in found else None,
    )


def _checked_taps(taps: NDArray[np.float32]) -> NDArray[np.float32]:
    """The taps; ValueError unless they are 2048 finite numbers."""
    if taps.shape != (_N_TAPS,) or not np.isfinite(taps).all():
        raise ValueError(f"fir: {list(taps.shape)} numbers are not {_N_TAPS} finite ones")
    return taps
