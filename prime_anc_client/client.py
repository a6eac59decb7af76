"""The client: one request, one answer, and retries within a time limit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import httpx
import numpy as np
from numpy.typing import ArrayLike

from prime_anc_client import answers
from prime_anc_client.answers import Design, Evaluation, Realisation
from prime_anc_client.calibration import Calibration, DriveTake, Sign, Take, read_calibration
from prime_anc_client.errors import NotReached, Refused, UnknownAnswer, from_answer
from prime_anc_client.transport import Transport
from prime_anc_client.verification import Recording, Verification, read_verification
from prime_anc_client.wire import (
    MEDIA_TYPE,
    RATE_HZ,
    Ceiling,
    ceiling,
    encode_request,
    paths,
    signals,
)
from prime_anc_client.wire import takes as wire_takes

_JSON = "application/json"
_DEFAULT_RETRY_S = 1.0
_KEY = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]+")

_MAX_DEADLINE_MS = 60_000.0
_RECORDINGS_DEADLINE_MS = 30_000.0
"""The service's own for recordings (`/calibrate`, `/verify`) sent without one."""

_Read = TypeVar("_Read")

FileKind = Literal["wav", "csv", "c", "mat", "minidsp", "apo"]


@dataclass(frozen=True, eq=False)
class Condition:
    """One seating, direction or way of wearing that a filter shall serve.

    primary, secondary, coherence: as in `Client.synthesize`; a calibration replaces all three. feedback:
    loudspeaker to outer microphone, of the same kind as the other paths; default: the calibration's. weight: above
    0, relative to the others.
    """

    primary: ArrayLike | Calibration
    secondary: ArrayLike | None = None
    coherence: ArrayLike | None = None
    feedback: ArrayLike | None = None
    weight: float = 1.0
    label: str = ""


class DesignOptions(TypedDict, total=False):
    """Options of a design, as the service's own table has them (docs/http-api.md); what is None is left out."""

    reference_psd: ArrayLike | None
    model: str | None
    method: str | None
    sign: Sign | None
    max_gain_db: Ceiling | None
    latency_samples: float | None
    min_gain_margin_db: float | None
    min_phase_margin_deg: float | None
    leave_one_out: bool | None


@dataclass(frozen=True, eq=False)
class Item:
    """One ear of several in a request; the fields are the arguments of `Client.synthesize`."""

    primary: ArrayLike | Calibration
    secondary: ArrayLike | None = None
    coherence: ArrayLike | None = None
    reference_psd: ArrayLike | None = None
    model: str | None = None
    method: str | None = None
    sign: Sign | None = None
    max_gain_db: Ceiling | None = None
    feedback: ArrayLike | None = None
    latency_samples: float | None = None
    min_gain_margin_db: float | None = None
    min_phase_margin_deg: float | None = None


class FilterOptions(TypedDict, total=False):
    """Further arguments of `Client.evaluate`, `verify` and `export`: those of `Client.synthesize`. feedback: as of
    a `Condition`. sign: default: the design's or the calibration's, else `minus`. latency_samples: what the filter
    was designed for."""

    coherence: ArrayLike | None
    feedback: ArrayLike | None
    reference_psd: ArrayLike | None
    model: str | None
    sign: Sign | None
    latency_samples: float
    deadline_ms: float | None


class ExportOptions(FilterOptions, total=False):
    """Further arguments of `Client.export`. max_gain_db: ceiling on |W| of what is designed anew."""

    max_gain_db: Ceiling | None


class Client:
    """A connection to one service, kept until it is closed. Not thread-safe.

    Requests are sent as safetensors. Answers come in JSON, which has every figure and takes 0.4 ms more than a binary
    answer, of about 3 ms from call to return.
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
        """url: of the service. uds: Unix socket that it listens on, instead of the address in the URL.

        A request is repeated after a 503 (after the seconds of its `Retry-After`), after a refused connection
        (after one second) and after a broken connection (at once: a design changes nothing), as long as the next
        attempt begins within `retry_for_s` of the first. timeout_s: of one attempt, from connecting to the last
        byte of the answer, in addition to the deadline (30 s for a calibration without one). Raises ValueError for
        a key that does not fit into a header.
        """
        if api_key is not None and not _KEY.fullmatch(api_key):
            raise ValueError("api_key: it is empty or contains white space or control characters")
        headers = {"Accept": _JSON}
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
            answer = self._http.get("/health/ready")
            return answer.status_code == 200 and _parse(_read_readiness, answer)
        except (httpx.RequestError, UnknownAnswer):
            return False

    def synthesize(
        self,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        coherence: ArrayLike | None = None,
        feedback: ArrayLike | None = None,
        deadline_ms: float | None = None,
        **options: Unpack[DesignOptions],
    ) -> Design:
        """Design a filter without updates.

        primary, secondary: impulse responses (real, 1 to 32768 samples at 48 kHz) or one-sided spectra (complex,
        n_fft / 2 + 1 bins). coherence: per bin, 0 to 1. A calibration replaces all three. feedback: as of a
        `Condition`. reference_psd: of the expected noise, mean square per bin; default: the model's own. sign: of the
        signal chain; default: the calibration's, else `minus`. model: `name` or `name@version`. method: `prime` or
        another that the service has; it refuses others and names its own. max_gain_db: ceiling on |W|, a number or a
        curve {"frequency_hz": .., "gain_db": ..}. latency_samples: delay of the signal chain that no secondary path
        holds. min_gain_margin_db, min_phase_margin_deg: of the loop through the feedback path; default 6 dB and 30
        degrees. deadline_ms: after which the answer is no longer needed.
        Raises ValueError for arrays of a wrong shape, and ClientError.
        """
        one = Condition(primary, secondary, coherence, feedback)
        return self._design("/synthesize", _alone(one, options), deadline_ms)

    def refine(
        self,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        k: int = 3,
        profile: str = "fast",
        coherence: ArrayLike | None = None,
        feedback: ArrayLike | None = None,
        deadline_ms: float | None = None,
        **options: Unpack[DesignOptions],
    ) -> Design:
        """The same with up to `k` Gauss-Newton updates, 0 to 8.

        profile: `fine` uses a finer frequency grid than `fast`; the service chooses it by itself for responses of
        more than 4096 samples and spectra of more than 2049 bins.
        """
        one = Condition(primary, secondary, coherence, feedback)
        return self._design("/refine", _alone(one, options) | {"k": k, "profile": profile}, deadline_ms)

    def refine_conditions(
        self,
        conditions: Sequence[Condition],
        *,
        k: int = 3,
        profile: str = "fast",
        deadline_ms: float | None = None,
        **options: Unpack[DesignOptions],
    ) -> Design:
        """One filter for 1 to 16 conditions, with what it does in each.

        leave_one_out: also design on all other conditions for each one. sign: default: that of the calibrations,
        else `minus`. The other arguments are those of `refine`. Raises ValueError for arrays of a wrong shape, and
        ClientError.
        """
        known = [_paths_of(each, options.get("sign")) for each in conditions]
        signs = {sign for _, sign in known}
        if len(signs) > 1:
            raise ValueError("conditions: calibrations of both signs; give `sign`, or calibrate with one")
        body = {
            "conditions": [
                fields | {"weight": each.weight, "label": each.label}
                for each, (fields, _) in zip(conditions, known, strict=True)
            ],
            "sign": next(iter(signs), "minus"),
            "k": k,
            "profile": profile,
        }
        return self._design("/refine", _options(options) | body, deadline_ms)

    def synthesize_items(
        self, items: Sequence[Item], *, deadline_ms: float | None = None
    ) -> list[Design | Refused]:
        """Design 1 to 16 filters without updates in one request; the answers are in the order of the items.

        A refused item is not raised but returned in its place; if all are refused for lack of time, the request
        raises Unavailable. Raises ValueError for arrays of a wrong shape, before anything is sent, and ClientError.
        """
        return self._design_items("/synthesize", items, {}, deadline_ms)

    def refine_items(
        self, items: Sequence[Item], *, k: int = 3, profile: str = "fast", deadline_ms: float | None = None
    ) -> list[Design | Refused]:
        """The same with up to `k` Gauss-Newton updates for each, 0 to 8."""
        return self._design_items("/refine", items, {"k": k, "profile": profile}, deadline_ms)

    def calibrate(
        self,
        takes: Sequence[Take | DriveTake],
        *,
        model: str | None = None,
        sign: Sign = "minus",
        n_windows: int | None = None,
        deadline_ms: float | None = None,
    ) -> Calibration:
        """Estimate an ear's paths from 2 to 64 takes, at least one with gain 0 and one without, and judge them.

        A `DriveTake` may stand for the take without, or beside it. It gives the feedback path too.

        model: whose support listeners the paths are compared with. sign: of the signal chain that played
        the gain. n_windows: windows of 8192 samples used of each take, 1 to 64. A calibration that did not pass is
        returned too: check its verdict before using it. Raises ValueError for signals of a wrong shape, and
        ClientError.
        """
        body = {"takes": wire_takes(takes), "model": model, "sign": sign, "n_windows": n_windows}
        return _parse(read_calibration, self._post("/calibrate", body, deadline_ms))

    def evaluate(
        self,
        taps: ArrayLike | Design,
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        **options: Unpack[FilterOptions],
    ) -> Evaluation:
        """Predict what a filter does on these paths.

        taps: float32 [2048], in the sign of the signal chain, or a design. primary, secondary, options: as in
        `synthesize`. Raises ValueError for arrays of a wrong shape, and ClientError.
        """
        body = _filter_document(taps, primary, secondary, options)
        return _parse(answers.read_evaluation, self._post("/evaluate", body, options.get("deadline_ms")))

    def verify(
        self,
        taps: ArrayLike | Design,
        off: Sequence[Recording],
        on: Sequence[Recording],
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        **options: Unpack[FilterOptions],
    ) -> Verification:
        """What a filter does on the ear, from recordings with it off and on, and what is off.

        taps: as in `evaluate`; a design is compared with its own prediction, taps with a new one. primary,
        secondary, options: what the filter was designed for. Raises ValueError for arrays of a wrong shape, and
        ClientError.
        """
        body = _filter_document(taps, primary, secondary, options)
        body["takes"] = [
            {"state": state} | signals(state, x=each.x, e=each.e)
            for state, part in (("off", off), ("on", on))
            for each in part
        ]
        if isinstance(taps, Design):
            body["prediction"] = {
                "noise_reduction_db": taps.prediction.noise_reduction_db.tolist(),
                "mean_noise_reduction_db": taps.noise_reduction_db,
                "max_gain_db": taps.prediction.max_gain_db,
            }
        return _parse(read_verification, self._post("/verify", body, options.get("deadline_ms")))

    @overload
    def export(
        self,
        taps: ArrayLike | Design,
        target: Mapping[str, object],
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        file: None = None,
        **options: Unpack[ExportOptions],
    ) -> Realisation: ...

    @overload
    def export(
        self,
        taps: ArrayLike | Design,
        target: Mapping[str, object],
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        file: FileKind,
        **options: Unpack[ExportOptions],
    ) -> bytes: ...

    def export(
        self,
        taps: ArrayLike | Design,
        target: Mapping[str, object],
        primary: ArrayLike | Calibration,
        secondary: ArrayLike | None = None,
        *,
        file: FileKind | None = None,
        **options: Unpack[ExportOptions],
    ) -> Realisation | bytes:
        """A filter as hardware runs it: its coefficients, or, with `file`, the bytes of that file.

        target: {"form": "sos", "n_sections": 6, "sample_rate": 48000, "number_format": "q1.23"} or {"form": "fir",
        "n_taps": 512, ..}; each may be left out. The rest is as in `evaluate`.
        """
        limit = ceiling(options.pop("max_gain_db", None))
        body = _filter_document(taps, primary, secondary, options)
        body |= {"target": dict(target), "file": file, "max_gain_db": limit}
        answer = self._post("/export", body, options.get("deadline_ms"), accept="*/*")
        return _parse(answers.read_realisation, answer) if file is None else answer.content

    def _design(self, path: str, body: Mapping[str, Any], deadline_ms: float | None) -> Design:
        return _parse(answers.read_design, self._post(path, body, deadline_ms))

    def _design_items(
        self, path: str, items: Sequence[Item], options: Mapping[str, Any], deadline_ms: float | None
    ) -> list[Design | Refused]:
        requests = [{"sample_rate": RATE_HZ, **_of_item(item), **options} for item in items]
        body = encode_request({"items": requests})
        found = _parse(answers.read_items, self._send_body(path, body, deadline_ms, _JSON))
        if len(found) != len(items):
            raise UnknownAnswer(f"{len(found)} answers came for {len(items)} items")
        return found

    def _post(
        self, path: str, body: Mapping[str, Any], deadline_ms: float | None, accept: str = _JSON
    ) -> httpx.Response:
        return self._send_body(path, encode_request({"sample_rate": RATE_HZ, **body}), deadline_ms, accept)

    def _send_body(self, path: str, body: bytes, deadline_ms: float | None, accept: str) -> httpx.Response:
        headers = {"Content-Type": MEDIA_TYPE, "Accept": accept}
        if deadline_ms is not None:  # without an exponent, which the service refuses
            headers["X-Deadline-Ms"] = np.format_float_positional(float(deadline_ms), trim="-")
        if deadline_ms is None:
            deadline_ms = _RECORDINGS_DEADLINE_MS if path in ("/calibrate", "/verify") else 0.0
        timeout_s = self._timeout_s + min(max(0.0, float(deadline_ms)), _MAX_DEADLINE_MS) / 1e3
        return self._send(self._http.build_request("POST", path, content=body, headers=headers, timeout=timeout_s))

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


def _paths_of(given: Condition | Item, sign: Sign | None) -> tuple[dict[str, Any], Sign]:
    """The fields of paths, and the sign of their signal chain."""
    if isinstance(given.primary, Calibration):
        if given.secondary is not None or given.coherence is not None:
            raise ValueError("secondary, coherence: a calibration holds them already; leave them out")
        known = given.primary
        feedback = known.feedback if given.feedback is None else given.feedback
        fields = paths(known.primary, known.secondary, known.coherence, known.uncertainty, feedback)
        return fields, sign or known.sign
    if given.secondary is None:
        raise ValueError("secondary: it is missing; give both paths or a calibration")
    return paths(given.primary, given.secondary, given.coherence, None, given.feedback), sign or "minus"


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a design as fields of a request; TypeError for those that there are not."""
    if unknown := options.keys() - DesignOptions.__annotations__.keys():
        raise TypeError(f"{', '.join(sorted(unknown))}: there is no such argument")
    psd = options.get("reference_psd")
    arrays = {} if psd is None else {"reference_psd": np.asarray(psd)}
    return {**options, "max_gain_db": ceiling(options.get("max_gain_db")), **arrays}


def _alone(condition: Condition, options: Mapping[str, Any]) -> dict[str, Any]:
    """A request about one condition."""
    fields, sign = _paths_of(condition, options.get("sign"))
    return _options(options) | fields | {"sign": sign}


def _of_item(item: Item) -> dict[str, Any]:
    """An item's request."""
    names = DesignOptions.__annotations__.keys() & vars(item).keys()
    fields, sign = _paths_of(item, item.sign)
    return _options({name: getattr(item, name) for name in names}) | fields | {"sign": sign}


def _filter_document(
    taps: ArrayLike | Design,
    primary: ArrayLike | Calibration,
    secondary: ArrayLike | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """A filter on an ear."""
    if unknown := options.keys() - FilterOptions.__annotations__.keys():
        raise TypeError(f"{', '.join(sorted(unknown))}: there is no such argument")
    fir, sign = (taps.taps, taps.sign) if isinstance(taps, Design) else (taps, None)
    one = Condition(primary, secondary, options.get("coherence"), options.get("feedback"))
    chosen = {name: options.get(name) for name in ("reference_psd", "model", "latency_samples") if name in options}
    return _alone(one, {**chosen, "sign": options.get("sign") or sign}) | {"fir": np.asarray(fir)}


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


def _parse(read: Callable[[Any], _Read], answer: httpx.Response) -> _Read:
    """What `read` makes of the JSON of an answer of status 200; UnknownAnswer where it is not the service's."""
    try:
        return read(json.loads(answer.content))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        found = f"{answer.headers.get('Content-Type', 'no media type')} {answer.content[:80]!a}"
        raise UnknownAnswer(f"an answer of status 200 does not come from the service: {found}") from error


def _read_readiness(found: Any) -> bool:
    return bool(found["status"] == "ready")
