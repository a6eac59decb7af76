"""The client: one request, one answer, and patience within bounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Literal

import httpx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import Calibration, Sign, Take, read_calibration
from prime_anc_client.errors import NotReached, from_answer
from prime_anc_client.wire import encode, encode_takes

Method = Literal["prime", "ratio_base", "projected_ratio", "wmmse"]
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
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        coherence: ArrayLike | None = None,
        model: str | None = None,
        method: Method = "prime",
        sign: Sign | None = None,
        max_gain_db: float | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """Design a filter without updates.

        primary, secondary: impulse responses (real, 1 to 32768 samples at 48 kHz) or one-sided spectra (complex,
        n_fft / 2 + 1 bins). coherence: per bin, 0 to 1. A calibration stands for all three. sign: of the signal
        chain; without one the calibration's, else `minus`. model: `name` or `name@version`. max_gain_db: ceiling on
        |W|. deadline_ms: when the answer is worth nothing any more. Raises ValueError for arrays of a wrong shape,
        and ClientError.
        """
        body, sign = _ear(primary, secondary, coherence, sign)
        options = _given(model=model, method=method, sign=sign, max_gain_db=max_gain_db)
        return _read(self._post("/synthesize", body, options, deadline_ms))

    def refine(
        self,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        k: int = 3,
        profile: Profile = "fast",
        coherence: ArrayLike | None = None,
        model: str | None = None,
        method: Method = "prime",
        sign: Sign | None = None,
        max_gain_db: float | None = None,
        deadline_ms: float | None = None,
    ) -> Design:
        """The same with up to `k` Gauss-Newton updates, 0 to 8."""
        body, sign = _ear(primary, secondary, coherence, sign)
        options = _given(k=k, profile=profile, model=model, method=method, sign=sign, max_gain_db=max_gain_db)
        return _read(self._post("/refine", body, options, deadline_ms))

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

    def _post(
        self, path: str, body: bytes, options: dict[str, str], deadline_ms: float | None, accept: str = _BINARY
    ) -> httpx.Response:
        headers = _given(**{"X-Deadline-Ms": deadline_ms, "Accept": accept})
        return self._answered(self._http.build_request("POST", path, content=body, params=options, headers=headers))

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


def _ear(
    primary: ArrayLike | Calibration, secondary: ArrayLike | None, coherence: ArrayLike | None, sign: Sign | None
) -> tuple[bytes, Sign]:
    """The body that says what is known of an ear, and the sign of its signal chain."""
    if isinstance(primary, Calibration):
        if secondary is not None or coherence is not None:
            raise ValueError("secondary, coherence: found one beside a calibration, expected the calibration alone")
        return encode(primary.primary, primary.secondary, primary.coherence), sign or primary.sign
    if secondary is None:
        raise ValueError("secondary: found none, expected a path, or a calibration in place of both")
    return encode(primary, secondary, coherence), sign or "minus"


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
