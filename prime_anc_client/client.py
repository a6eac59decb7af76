"""The client: one request, one answer, and patience within bounds."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, TypeVar

import httpx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import Calibration, Sign, Take, read_calibration
from prime_anc_client.errors import NotReached, Refused, UnknownAnswer, from_answer, from_document
from prime_anc_client.transport import Transport
from prime_anc_client.wire import document, encode, encode_json, encode_takes

Method = Literal["prime", "ratio_base", "projected_ratio", "wmmse"]
Profile = Literal["fast", "fine", "paper"]

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
    """A filter and what the service says of it.

    taps: float32 [2048], causal, 48 kHz, in the sign asked for, read-only. model_digest: of what made it.
    n_applied: updates made. noise_reduction_db: predicted mean, 50 Hz to 5 kHz, positive is quieter.
    amplification_db: predicted mean of what bands become louder by. warnings: codes. timings_ms: of each stage that
    was timed apart.
    """

    taps: NDArray[np.float32]
    model_digest: str
    n_applied: int
    noise_reduction_db: float
    amplification_db: float
    warnings: tuple[str, ...]
    timings_ms: dict[str, float]


@dataclass(frozen=True, eq=False)
class Item:
    """One ear, and what is asked for it; the fields are the arguments of `Client.synthesize`."""

    primary: ArrayLike | Calibration
    secondary: ArrayLike | None = None
    coherence: ArrayLike | None = None
    reference_psd: ArrayLike | None = None
    model: str | None = None
    method: Method = "prime"
    sign: Sign | None = None
    max_gain_db: float | None = None


class Client:
    """Asks one service. For one thread at a time; connections are kept until it is closed."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        retry_for_s: float = 30.0,
    ) -> None:
        """url: of the service. uds: Unix socket that it listens on, in place of the address in the URL.

        A 503 is tried again after the seconds that its `Retry-After` asks for, a refused connection after one, and
        a connection that broke at once (asking for a design changes nothing, so it may be asked for twice), as long
        as the next attempt begins within `retry_for_s` of the first. timeout_s: of one attempt, from connecting to
        the last byte of the answer; the deadline comes on top, 30 s for a calibration that names none. Raises
        ValueError for a key that no header can hold.
        """
        if api_key is not None and not _KEY.fullmatch(api_key):
            raise ValueError("api_key: found an empty one, or a blank or line end in it, expected neither")
        headers = {"Content-Type": _BINARY, "Accept": _BINARY}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        # A key is of whatever letters, and the service knows it by its bytes.
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
        """Whether the service designs filters now; False too where nobody answers."""
        try:
            answer = self._http.get("/health/ready", headers={"Accept": _JSON})
            return answer.status_code == 200 and _understood(_read_readiness, answer)
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
        method: Method = "prime",
        sign: Sign | None = None,
        max_gain_db: float | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """Design a filter without updates.

        primary, secondary: impulse responses (real, 1 to 32768 samples at 48 kHz) or one-sided spectra (complex,
        n_fft / 2 + 1 bins). coherence: per bin, 0 to 1. A calibration stands for all three. reference_psd: of the
        noise to expect, mean square per bin; the model's own where None. It is sent in JSON, which takes some
        milliseconds more. sign: of the signal chain; without one the calibration's, else `minus`. model: `name` or
        `name@version`. max_gain_db: ceiling on |W|. deadline_ms: when the answer is worth nothing any more. Raises
        ValueError for arrays of a wrong shape, and ClientError.
        """
        item = Item(primary, secondary, coherence, reference_psd, model, method, sign, max_gain_db)
        return self._design("/synthesize", item, {}, deadline_ms)

    def refine(
        self,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        k: int = 3,
        profile: Profile = "fast",
        coherence: ArrayLike | None = None,
        reference_psd: ArrayLike | None = None,
        model: str | None = None,
        method: Method = "prime",
        sign: Sign | None = None,
        max_gain_db: float | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """The same with up to `k` Gauss-Newton updates, 0 to 8.

        profile: `fine` for responses of up to 8192 samples that no window as long has smoothed, where `fast` would
        look at too few frequencies; for longer ones, and spectra of more than 4097 bins, `fast` stands for it.
        """
        item = Item(primary, secondary, coherence, reference_psd, model, method, sign, max_gain_db)
        return self._design("/refine", item, _given(k=k, profile=profile), deadline_ms)

    def synthesize_items(
        self, items: Sequence[Item], *, deadline_ms: float | None = None
    ) -> list[Design | Refused]:
        """Design 1 to 16 filters without updates in one request: for each item, in order, what it would get alone.

        Items of one model and method are designed together. A refusal is not raised but stands in its item's place;
        only where all are refused for want of time the request is, and raises Unavailable. Sent in JSON, as one
        body of at most 12 MiB unless the service is told otherwise. Raises ValueError for arrays of a wrong shape,
        before anything is sent, and ClientError.
        """
        return self._design_items("/synthesize", items, {}, deadline_ms)

    def refine_items(
        self, items: Sequence[Item], *, k: int = 3, profile: Profile = "fast", deadline_ms: float | None = None
    ) -> list[Design | Refused]:
        """The same with up to `k` Gauss-Newton updates for each, 0 to 8."""
        return self._design_items("/refine", items, _given(k=k, profile=profile), deadline_ms)

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

        model: whose support polarity and leak are judged against. sign: of the signal chain that played the gain.
        n_windows: windows of 8192 samples that are read of each take, 1 to 64; as many as models were trained with
        where None. A calibration that did not pass is an answer too: see its verdict before using it. Raises
        ValueError for signals of a wrong shape, and ClientError.
        """
        options = _given(model=model, sign=sign, n_windows=n_windows)
        # In binary the answer would hold the verdict's codes only.
        answer = self._post("/calibrate", encode_takes(takes), options, deadline_ms, accept=_JSON)
        return _understood(_read_calibration, answer)

    def _design(self, path: str, item: Item, options: dict[str, str], deadline_ms: float | None) -> Design:
        if item.reference_psd is not None:
            body = encode_json(_members(item))
            return _understood(_read, self._post(path, body, options, deadline_ms, content_type=_JSON))
        ear = _ear(item)
        asked = _given(model=item.model, method=item.method, sign=ear.sign, max_gain_db=item.max_gain_db)
        return _understood(_read, self._post(path, encode(*ear[:3]), options | asked, deadline_ms))

    def _design_items(
        self, path: str, items: Sequence[Item], options: dict[str, str], deadline_ms: float | None
    ) -> list[Design | Refused]:
        body = encode_json({"items": [_members(item) for item in items]})
        answer = self._post(path, body, options, deadline_ms, content_type=_JSON, accept=_JSON)
        found = _understood(_read_items, answer)
        if len(found) != len(items):
            raise UnknownAnswer(f"found {len(found)} answers, expected {len(items)}")
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
        headers = _given(**{"X-Deadline-Ms": deadline_ms, "Content-Type": content_type, "Accept": accept})
        if deadline_ms is None:
            deadline_ms = _CALIBRATION_DEADLINE_MS if path == "/calibrate" else 0.0
        timeout_s = self._timeout_s + min(max(0.0, float(deadline_ms)), _MAX_DEADLINE_MS) / 1e3
        return self._answered(
            self._http.build_request("POST", path, content=body, params=options, headers=headers, timeout=timeout_s)
        )

    def _answered(self, request: httpx.Request) -> httpx.Response:
        """The answer once it is a success, within the bound on retries."""
        given_up = time.monotonic() + self._retry_for_s
        has_broken = False
        while True:
            try:
                answer = self._http.send(request)
            except httpx.TimeoutException as error:
                raise NotReached(f"found no answer in time: {error}") from error
            except httpx.DecodingError as error:
                raise UnknownAnswer(f"found a body that its Content-Encoding does not fit: {error}") from error
            except httpx.TransportError as error:
                # A kept connection may have been closed meanwhile; a new one that breaks too is given time.
                is_new = has_broken or isinstance(error, httpx.ConnectError)
                wait_s, has_broken = _DEFAULT_RETRY_S if is_new else 0.0, True
                if _is_hopeless(error) or time.monotonic() + wait_s > given_up:
                    raise NotReached(f"found no service that answers: {error}") from error
            else:
                if answer.status_code == 200:
                    return answer
                wait_s = _retry_after_s(answer)
                if answer.status_code != 503 or time.monotonic() + wait_s > given_up:
                    raise from_answer(answer.status_code, answer.content)
            time.sleep(wait_s)


class _Ear(NamedTuple):
    primary: ArrayLike
    secondary: ArrayLike
    coherence: ArrayLike | None
    sign: Sign


def _ear(item: Item) -> _Ear:
    """What is known of an item's ear, and the sign of its signal chain."""
    if isinstance(item.primary, Calibration):
        if item.secondary is not None or item.coherence is not None:
            raise ValueError("secondary, coherence: found one beside a calibration, expected the calibration alone")
        known = item.primary
        return _Ear(known.primary, known.secondary, known.coherence, item.sign or known.sign)
    if item.secondary is None:
        raise ValueError("secondary: found none, expected a path, or a calibration in place of both")
    return _Ear(item.primary, item.secondary, item.coherence, item.sign or "minus")


def _members(item: Item) -> dict[str, object]:
    """An item in JSON."""
    ear = _ear(item)
    return document(
        ear.primary,
        ear.secondary,
        ear.coherence,
        item.reference_psd,
        model=item.model,
        method=item.method,
        sign=ear.sign,
        max_gain_db=item.max_gain_db,
    )


def _given(**options: object) -> dict[str, str]:
    """Those that are not None, as text."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    """A float without an exponent, which the service takes in no header and no query."""
    if isinstance(value, float | np.floating):
        return np.format_float_positional(float(value), trim="-")
    return str(value)


def _is_hopeless(error: httpx.TransportError) -> bool:
    """Whether waiting does not help: a wrong URL or header, a host without a name, a certificate without trust.

    A connection that is refused, or a Unix socket that is missing, is a service that starts.
    """
    if not isinstance(error, httpx.ConnectError):
        return isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    cause: BaseException = error
    while following := cause.__cause__ or cause.__context__:
        cause = following
    return not isinstance(cause, ConnectionError | FileNotFoundError)


def _retry_after_s(answer: httpx.Response) -> float:
    """Seconds; one where the header is missing or, as a proxy's may be, a date."""
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else _DEFAULT_RETRY_S


def _understood(read: Callable[[httpx.Response], _Read], answer: httpx.Response) -> _Read:
    """What the function reads from an answer of status 200. Raises UnknownAnswer where it is not the service's."""
    try:
        return read(answer)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        found = f"{answer.headers.get('Content-Type', 'no media type')} {answer.content[:80]!a}"
        raise UnknownAnswer(f"found 200 with {found}, expected the service's own answer") from error


def _read_readiness(answer: httpx.Response) -> bool:
    return bool(json.loads(answer.content)["status"] == "ready")


def _read_calibration(answer: httpx.Response) -> Calibration:
    return read_calibration(answer.content)


def _read_items(answer: httpx.Response) -> list[Design | Refused]:
    return [_read_item(each) for each in json.loads(answer.content)["items"]]


def _read(answer: httpx.Response) -> Design:
    """The taps from the body, the rest from the headers."""
    headers = answer.headers
    timings = (part.split(";dur=") for part in headers["Server-Timing"].split(", "))
    return Design(
        taps=_whole(np.frombuffer(answer.content, "<f4")),
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
        # JSON's `primary.impulse_response` is the argument `primary`, as it is in binary.
        problem.field = problem.field and problem.field.split(".")[0]
        return problem
    taps = _whole(np.array(found["fir"], np.float32))
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
    )


def _whole(taps: NDArray[np.float32]) -> NDArray[np.float32]:
    """The taps; ValueError where they are no filter."""
    if taps.shape != (_N_TAPS,) or not np.isfinite(taps).all():
        raise ValueError(f"fir: found {list(taps.shape)} numbers, expected {_N_TAPS} that are finite")
    return taps
