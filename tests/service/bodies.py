"""Request bodies as clients write them."""

import base64
import hashlib
from typing import Any, TypeVar

import httpx
import numpy as np

from prime_anc.client import wire
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.types import Paths
from prime_anc.requests.bodies import CommonBody
from prime_anc.requests.reading import body_fields, validate_object
from service.api.reading import parse_json

Json = dict[str, Any]
JSON_BODY = {"Content-Type": "application/json"}
BINARY_BODY = {"Content-Type": "application/x-safetensors"}
Body = TypeVar("Body", bound=CommonBody)


def digest(key: str) -> str:
    """What the settings hold of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_json(kind: type[Body], body: bytes | bytearray) -> Body:
    """Parse and validate a body as the service does, or raise HttpProblem."""
    return validate_object(kind, body_fields(parse_json(body), kind))


def packed(value: Any) -> Any:
    """A request with arrays in the places of base64 and of long lists."""
    if isinstance(value, dict):
        if value.keys() == {"float32"}:
            return np.frombuffer(base64.b64decode(value["float32"]), "<f4")
        return {name: packed(item) for name, item in value.items()}
    if isinstance(value, list):
        if len(value) > 64 and set(map(type, value)) <= {int, float}:
            return np.array(value)
        return list(map(packed, value))
    return value


async def post_packed(client: httpx.AsyncClient, path: str, body: Json) -> httpx.Response:
    """Send a request as tensors."""
    headers = {"Content-Type": wire.MEDIA_TYPE}
    return await client.post(path, content=wire.encode_request(packed(body)), headers=headers)


async def ask_packed(client: httpx.AsyncClient, path: str, body: Json) -> Json:
    """Send a request as tensors, expect an answer."""
    answer = await post_packed(client, path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def as_responses(ear: Paths, **more: object) -> Json:
    """A JSON request with impulse responses."""
    return {
        "primary": {"impulse_response": ear.primary.tolist()},
        "secondary": {"impulse_response": ear.secondary.tolist()},
        "sample_rate": 48_000,
        **more,
    }


def spectra(ear: Paths, n_fft: int = DESIGN_N_FFT) -> tuple[np.ndarray, np.ndarray]:
    """The ear's paths as complex64 spectra."""
    primary, secondary = (np.fft.rfft(item, n_fft).astype(np.complex64) for item in (ear.primary, ear.secondary))
    return primary, secondary


def as_lists(ear: Paths, n_fft: int = DESIGN_N_FFT, **more: object) -> Json:
    """A JSON request with spectra as lists of numbers."""
    primary, secondary = ({"real": item.real.tolist(), "imag": item.imag.tolist()} for item in spectra(ear, n_fft))
    return {"primary": primary, "secondary": secondary, "sample_rate": 48_000, **more}


def as_base64(ear: Paths, n_fft: int = DESIGN_N_FFT, **more: object) -> Json:
    """A JSON request with spectra in base64."""
    primary, secondary = ({"complex64": base64.b64encode(item.tobytes()).decode()} for item in spectra(ear, n_fft))
    return {"primary": primary, "secondary": secondary, "sample_rate": 48_000, **more}
