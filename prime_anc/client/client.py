"""Client of the service: requests, and retries within a time limit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal, TypeVar

import httpx
import numpy as np
from numpy.typing import ArrayLike

from prime_anc.answers import (
    CalibrationAnswer,
    DesignAnswer,
    EvaluationAnswer,
    ExportAnswer,
    HybridAnswer,
    Ready,
    VerificationAnswer,
    read,
)
from prime_anc.client.bodies import Condition, Ear, about_ear, about_filter
from prime_anc.client.errors import NotReached, UnknownAnswer, from_answer
from prime_anc.client.options import EXPORT, FILTER, REFINEMENT, SYNTHESIS, takes_options
from prime_anc.client.recordings import DriveTake, Recording, Take
from prime_anc.client.wire import MEDIA_TYPE, RATE_HZ, encode_request, signals
from prime_anc.client.wire import takes as wire_takes
from prime_anc.options import Sign

_DEFAULT_RETRY_S = 1.0
_KEY = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]+")

_MAX_DEADLINE_MS = 60_000.0
# The service's default for recordings, and for designs with a controller.
_RECORDINGS_DEADLINE_MS = 30_000.0
_LONG = ("/calibrate", "/hybrid", "/verify")

_Kind = TypeVar("_Kind")

Fields = Mapping[str, Any]
FileKind = Literal["wav", "csv", "c", "mat", "minidsp", "apo", "camilladsp", "bes", "sigmadsp"]


class Client:
    """A connection to one service, kept until it is closed. Not thread-safe.

    Requests are sent as safetensors. Answers are JSON, which has all figures and takes 0.4 ms more than a binary
    answer, of about 3 ms per call.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        uds: str | PathLike[str] | None = None,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        retry_for_s: float = 30.0,
    ) -> None:
        """Connect to a service.

        A request is repeated after a 503, or a proxy's 502 or 504 (after the seconds of its `Retry-After`), after a
        refused connection (after one second) and after a broken connection (at once: a design changes nothing), as
        long as the next attempt begins within `retry_for_s` of the first.

        Parameters
        ----------
        url
            URL of the service.
        uds
            Unix socket of the service, instead of the address in the URL.
        api_key
            Key of the client.
        timeout_s
            Limit of connecting and of each wait for data, in addition to the deadline (30 s for a calibration without
            one).
        retry_for_s
            Time within which attempts are repeated.

        Raises
        ------
        ValueError
            The key does not fit into a header.
        """
        if api_key is not None and not _KEY.fullmatch(api_key):
            raise ValueError("api_key: it is empty or contains white space or control characters")
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        # A key may contain any letters; the service compares its UTF-8 bytes.
        self._http = httpx.Client(
            base_url=url,
            headers=httpx.Headers(headers, encoding="utf-8"),
            timeout=timeout_s,
            transport=httpx.HTTPTransport(uds=None if uds is None else fspath(uds)),
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
        """Return whether the service is ready to design; False if it does not answer."""
        try:
            answer = self._http.get("/health/ready")
            return answer.status_code == 200 and _parse(Ready, answer).status == "ready"
        except (httpx.RequestError, UnknownAnswer):
            return False

    @takes_options(SYNTHESIS)
    def synthesize(
        self, primary: ArrayLike | Ear, secondary: ArrayLike | None = None, **fields: Any
    ) -> DesignAnswer:
        """Design a filter without updates.

        Parameters
        ----------
        primary, secondary
            Impulse responses (real, 1 to 32768 samples at 48 kHz) or one-sided spectra (complex, n_fft / 2 + 1 bins).
            A calibration or a Condition replaces them, the coherence and the feedback path; a calibration gives the
            sign, too. A list of these, 1 to 16 conditions, gets one filter, whose effect is predicted for each.
        **fields
            These and the options below; what is left out has the service's default.

        Raises
        ------
        TypeError
            There is no such option.
        ValueError
            Rows of two numbers look like a spectrum, or calibrations differ in sign.
        ClientError
            The service does not answer, or refuses.
        """
        body = about_ear(primary, secondary, fields, SYNTHESIS)
        return self._ask_for(DesignAnswer, "/synthesize", body)

    @takes_options(REFINEMENT)
    def refine(self, primary: ArrayLike | Ear, secondary: ArrayLike | None = None, **fields: Any) -> DesignAnswer:
        """Design a filter with up to `k` Gauss-Newton updates; arguments and errors as in `synthesize`."""
        body = about_ear(primary, secondary, fields, REFINEMENT)
        return self._ask_for(DesignAnswer, "/refine", body)

    @takes_options(REFINEMENT)
    def hybrid(
        self,
        primary: ArrayLike | Ear,
        secondary: ArrayLike | None = None,
        *,
        controller: Fields | None = None,
        stability_only: Sequence[Condition] = (),
        lend_wearing: bool = True,
        **fields: Any,
    ) -> HybridAnswer:
        """Design a filter and a feedback controller beside it.

        Parameters
        ----------
        primary, secondary, fields
            As in `synthesize`.
        controller
            What the controller has to be: `n_sections`, `sample_rate`, `latency_us`, `number_format`, ...
        stability_only
            Seatings in which the loop only has to be stable.
        lend_wearing
            Whether it must also be stable as the model's listeners wear the earphone otherwise.

        Returns
        -------
        HybridAnswer
            With its `controller`; requests about the filter include it.
        """
        body = about_ear(primary, secondary, fields | {"controller": controller}, REFINEMENT, stability_only)
        return self._ask_for(HybridAnswer, "/hybrid", body | {"lend_wearing": lend_wearing})

    def calibrate(
        self,
        takes: Sequence[Take | DriveTake],
        *,
        model: str | None = None,
        sign: Sign | None = None,
        n_windows: int | None = None,
        deadline_ms: float | None = None,
    ) -> CalibrationAnswer:
        """Estimate an ear's paths from recordings, and judge them.

        Parameters
        ----------
        takes
            2 to 64, at least one with gain 0 and one without. A `DriveTake` may stand for the take without, or beside
            it, and gives the feedback path too.
        model
            Model whose support listeners the paths are compared with.
        sign
            Sign of the signal chain that played the gain; default: `minus`.
        n_windows
            Windows per take; default: all.
        deadline_ms
            Time after which the answer is no longer needed.

        Returns
        -------
        Calibration
            Check its verdict before use: a calibration that did not pass is returned too.

        Raises
        ------
        ClientError
            The service does not answer, or refuses.
        """
        body = {"takes": wire_takes(takes), "model": model, "sign": sign, "n_windows": n_windows}
        return self._ask_for(CalibrationAnswer, "/calibrate", body | {"deadline_ms": deadline_ms})

    @takes_options(FILTER)
    def evaluate(
        self,
        taps: ArrayLike | DesignAnswer | ExportAnswer,
        primary: ArrayLike | Ear,
        secondary: ArrayLike | None = None,
        **fields: Any,
    ) -> EvaluationAnswer:
        """Predict the effect of a filter on given paths.

        Parameters
        ----------
        taps
            Taps, float32 [2048], in the sign of the signal chain, or a design or its export, which include the sign.
        primary, secondary, fields
            As in `synthesize`; `latency_samples` is that of the filter's design, `controller` by default too.
        """
        body = about_filter(taps, primary, secondary, fields, FILTER)
        return self._ask_for(EvaluationAnswer, "/evaluate", body)

    @takes_options(FILTER)
    def verify(
        self,
        taps: ArrayLike | DesignAnswer | ExportAnswer,
        off: Sequence[Recording],
        on: Sequence[Recording],
        primary: ArrayLike | Ear,
        secondary: ArrayLike | None = None,
        **fields: Any,
    ) -> VerificationAnswer:
        """Measure the effect of a filter from recordings with it off and on, and diagnose deviations.

        Parameters
        ----------
        taps
            As in `evaluate`; a design or an export is compared with its prediction, taps with a new one.
        off, on
            Recordings without and with the filter.
        primary, secondary, fields
            Paths and options of the filter's design.

        Raises
        ------
        ClientError
            The service does not answer, or refuses.
        """
        body = about_filter(taps, primary, secondary, fields, FILTER)
        body["takes"] = [
            {"state": state} | signals(item) for state, part in (("off", off), ("on", on)) for item in part
        ]
        if isinstance(taps, DesignAnswer | ExportAnswer):
            names = ("noise_reduction_db", "mean_noise_reduction_db", "max_gain_db")
            body["prediction"] = {name: np.asarray(getattr(taps.prediction, name)).tolist() for name in names}
        return self._ask_for(VerificationAnswer, "/verify", body)

    @takes_options(EXPORT)
    def export(
        self,
        taps: ArrayLike | DesignAnswer,
        target: Mapping[str, object],
        primary: ArrayLike | Ear,
        secondary: ArrayLike | None = None,
        *,
        file: FileKind | None = None,
        **fields: Any,
    ) -> Any:
        """Realise a filter as hardware runs it: its coefficients or, with `file`, the bytes of that file.

        Parameters
        ----------
        target
            {"form": "sos", "n_sections": 6, "sample_rate": 48000, "number_format": "q1.23"} or {"form": "fir",
            "n_taps": 512, ..}; all are optional. {"name": "pinebuds-pro"}: those of a known device.
        taps, primary, secondary, fields
            As in `evaluate`, but no export.
        """
        body = about_filter(taps, primary, secondary, fields, EXPORT) | {"target": dict(target)}
        if file is not None:
            deadline_ms = body.pop("deadline_ms", None)
            return self.ask("/export", body | {"file": file}, deadline_ms).content
        return self._ask_for(ExportAnswer, "/export", body)

    def _ask_for(self, kind: type[_Kind], path: str, body: dict[str, Any]) -> _Kind:
        deadline_ms = body.pop("deadline_ms", None)
        return _parse(kind, self.ask(path, body, deadline_ms))

    def ask(self, path: str, body: Fields | None = None, deadline_ms: float | None = None) -> httpx.Response:
        """POST the fields of a request as they are, or GET without any.

        Parameters
        ----------
        path
            Such as `/refine`.
        body
            Fields as docs/http-api.md describes them; arrays are sent as tensors.
        deadline_ms
            Time after which the answer is no longer needed.

        Returns
        -------
        httpx.Response
            Of status 200.

        Raises
        ------
        ClientError
            The service does not answer, or refuses.
        """
        if body is None:
            return self._send(self._http.build_request("GET", path))
        headers = {"Content-Type": MEDIA_TYPE}
        if deadline_ms is not None:  # without an exponent, which the service refuses
            headers["X-Deadline-Ms"] = np.format_float_positional(float(deadline_ms), trim="-")
        if deadline_ms is None:
            deadline_ms = _RECORDINGS_DEADLINE_MS if path in _LONG else 0.0
        timeout_s = self._timeout_s + min(max(0.0, float(deadline_ms)), _MAX_DEADLINE_MS) / 1e3
        content = encode_request({"sample_rate": RATE_HZ, **body})
        return self._send(
            self._http.build_request("POST", path, content=content, headers=headers, timeout=timeout_s)
        )

    def _send(self, request: httpx.Request) -> httpx.Response:
        """Return the successful answer, after retries within the time limit."""
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
                if answer.status_code not in (502, 503, 504) or time.monotonic() + wait_s > deadline:
                    raise from_answer(answer.status_code, answer.content)
            time.sleep(wait_s)


def _is_permanent(error: httpx.TransportError) -> bool:
    """Return whether retrying is useless: a wrong URL or header, an unknown host, an untrusted certificate.

    A refused connection or a missing Unix socket may belong to a service that is starting.
    """
    if not isinstance(error, httpx.ConnectError):
        return isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    cause: BaseException = error
    while following := cause.__cause__ or cause.__context__:
        cause = following
    return not isinstance(cause, ConnectionError | FileNotFoundError)


def _retry_after_s(answer: httpx.Response) -> float:
    """Return the delay; 1 if the header is missing or a date, as from a proxy."""
    retry_after = answer.headers.get("Retry-After", "")
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else _DEFAULT_RETRY_S


def _parse(kind: type[_Kind], answer: httpx.Response) -> _Kind:
    """Read the JSON of an answer of status 200; UnknownAnswer if it is not from the service."""
    try:
        return read(kind, json.loads(answer.content))
    except (ValueError, RecursionError) as error:
        found = f"{answer.headers.get('Content-Type', 'no media type')} {answer.content[:80]!a}"
        raise UnknownAnswer(f"an answer of status 200 does not come from the service: {found}") from error
