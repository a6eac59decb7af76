"""The client: one request, one answer, and patience within bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

import httpx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import Calibration, Sign, Take, read_calibration
from prime_anc_client.errors import NotReached, Refused, from_answer, from_document
from prime_anc_client.wire import document, encode, encode_json, encode_takes

Method = Literal["prime", "ratio_base", "projected_ratio", "wmmse"]
Profile = Literal["fast", "fine", "paper"]

_BINARY, _JSON = "application/octet-stream", "application/json"
_DEFAULT_RETRY_S = 1.0


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

        A 503 is tried again after the seconds that its `Retry-After` asks for, and a connection that broke at once
        (asking for a design changes nothing, so it may be asked for twice), as long as the next attempt begins
        within `retry_for_s` of the first. timeout_s: of one attempt.
        """
        headers = {"Content-Type": _BINARY, "Accept": _BINARY}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        transport = httpx.HTTPTransport(uds=None if uds is None else fspath(uds))
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)
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
            return self._http.get("/health/ready", headers={"Accept": "application/json"}).status_code == 200
        except httpx.TransportError:
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
        only where all are refused for want of time the request is, and raises Unavailable. Sent in JSON. Raises
        ValueError for arrays of a wrong shape, and ClientError.
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
        answer = self._post("/calibrate", encode_takes(takes), options, deadline_ms, accept="application/json")
        return read_calibration(answer.content)

    def _design(self, path: str, item: Item, options: dict[str, str], deadline_ms: float | None) -> Design:
        if item.reference_psd is not None:
            body = encode_json(_members(item))
            return _read(self._post(path, body, options, deadline_ms, content_type=_JSON))
        ear = _ear(item)
        asked = _given(model=item.model, method=item.method, sign=ear.sign, max_gain_db=item.max_gain_db)
        return _read(self._post(path, encode(*ear[:3]), options | asked, deadline_ms))

    def _design_items(
        self, path: str, items: Sequence[Item], options: dict[str, str], deadline_ms: float | None
    ) -> list[Design | Refused]:
        body = encode_json({"items": [_members(item) for item in items]})
        answer = self._post(path, body, options, deadline_ms, content_type=_JSON, accept=_JSON)
        return [_read_item(each) for each in json.loads(answer.content)["items"]]

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
        return self._answered(self._http.build_request("POST", path, content=body, params=options, headers=headers))

    def _answered(self, request: httpx.Request) -> httpx.Response:
        """The answer once it is a success, within the bound on retries."""
        given_up = time.monotonic() + self._retry_for_s
        has_broken = False
        while True:
            try:
                answer = self._http.send(request)
            except httpx.TimeoutException as error:
                raise NotReached(f"found no answer in time: {error}") from error
            except httpx.TransportError as error:
                # A kept connection may have been closed meanwhile; a new one that breaks too is given time.
                wait_s, has_broken = _DEFAULT_RETRY_S if has_broken else 0.0, True
                is_hopeless = isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol)
                if is_hopeless or time.monotonic() + wait_s > given_up:
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
    return np.format_float_positional(value, trim="-") if isinstance(value, float) else str(value)


def _retry_after_s(answer: httpx.Response) -> float:
    """Seconds; one where the header is missing or, as a proxy's may be, a date."""
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if asked.isascii() and asked.isdigit() else _DEFAULT_RETRY_S


def _read(answer: httpx.Response) -> Design:
    """The taps from the body, the rest from the headers."""
    headers = answer.headers
    timings = (part.split(";dur=") for part in headers["Server-Timing"].split(", "))
    return Design(
        taps=np.frombuffer(answer.content, "<f4"),
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
        return from_document(found["status"], found)
    taps = np.array(found["fir"], np.float32)
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
