"""The client: one request, one answer, and patience within bounds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Literal

import httpx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.errors import NotReached, from_answer
from prime_anc_client.wire import encode

Method = Literal["prime", "ratio_base", "projected_ratio", "wmmse"]
Sign = Literal["minus", "plus"]
Profile = Literal["fast", "paper"]

_BINARY = "application/octet-stream"
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


class Client:
    """Asks one service. For one thread at a time; connections are kept until it is closed."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        max_retries: int = 5,
        max_wait_s: float = 30.0,
    ) -> None:
        """url: of the service. uds: Unix socket that it listens on, in place of the address in the URL.

        A 503 is tried again after the seconds that its `Retry-After` asks for, and a connection that broke at once
        (asking for a design changes nothing, so it may be asked for twice): at most `max_retries` times, and never
        when the waiting would add up to more than `max_wait_s`. timeout_s: of one attempt.
        """
        headers = {"Content-Type": _BINARY, "Accept": _BINARY}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        transport = httpx.HTTPTransport(uds=None if uds is None else fspath(uds))
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)
        self._max_retries = max_retries
        self._max_wait_s = max_wait_s

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
        primary: ArrayLike,
        secondary: ArrayLike,
        *,
        coherence: ArrayLike | None = None,
        model: str | None = None,
        method: Method = "prime",
        sign: Sign = "minus",
        max_gain_db: float | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """Design a filter without updates.

        primary, secondary: impulse responses (real, 1 to 32768 samples at 48 kHz) or one-sided spectra (complex,
        n_fft / 2 + 1 bins). coherence: per bin, 0 to 1. model: `name` or `name@version`. max_gain_db: ceiling on
        |W|. deadline_ms: when the answer is worth nothing any more. Raises ValueError for arrays of a wrong shape,
        and ClientError.
        """
        options = _given(model=model, method=method, sign=sign, max_gain_db=max_gain_db)
        return self._design("/synthesize", encode(primary, secondary, coherence), options, deadline_ms)

    def refine(
        self,
        primary: ArrayLike,
        secondary: ArrayLike,
        *,
        k: int = 3,
        profile: Profile = "fast",
        coherence: ArrayLike | None = None,
        model: str | None = None,
        method: Method = "prime",
        sign: Sign = "minus",
        max_gain_db: float | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """The same with up to `k` Gauss-Newton updates, 0 to 8."""
        options = _given(k=k, profile=profile, model=model, method=method, sign=sign, max_gain_db=max_gain_db)
        return self._design("/refine", encode(primary, secondary, coherence), options, deadline_ms)

    def _design(self, path: str, body: bytes, options: dict[str, str], deadline_ms: float | None) -> Design:
        headers = _given(**{"X-Deadline-Ms": deadline_ms})
        request = self._http.build_request("POST", path, content=body, params=options, headers=headers)
        return _read(self._answered(request))

    def _answered(self, request: httpx.Request) -> httpx.Response:
        """The answer once it is a success, within the bounds on retries."""
        waited_s = 0.0
        for n_left in reversed(range(self._max_retries + 1)):
            try:
                answer = self._http.send(request)
            except httpx.TimeoutException as error:
                raise NotReached(f"found no answer in time: {error}") from error
            except httpx.TransportError as error:
                if not n_left or isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
                    raise NotReached(f"found no service that answers: {error}") from error
                continue
            if answer.status_code == 200:
                return answer
            wait_s = _retry_after_s(answer)
            if answer.status_code != 503 or not n_left or waited_s + wait_s > self._max_wait_s:
                break
            time.sleep(wait_s)
            waited_s += wait_s
        raise from_answer(answer.status_code, answer.content)


def _given(**options: object) -> dict[str, str]:
    """Those that are not None, as text."""
    return {name: str(value) for name, value in options.items() if value is not None}


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
