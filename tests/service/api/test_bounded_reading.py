"""Bodies of a megabyte take the event loop no longer than lists of spectra of that size."""

import json
from time import thread_time
from typing import Any

import numpy as np
import pytest

from prime_anc.requests.bodies import DesignBody, ExportBody
from prime_anc.requests.errors import RequestError
from prime_anc.requests.reading import body_fields, validate
from prime_anc.requests.takes import CalibrationBody
from service.api.reading import MAX_QUERY_FIELDS, parse_json, parse_tensors, query_options

N_BYTES = 1_000_000
PATHS = '"primary":{"impulse_response":[1]},"secondary":{"impulse_response":[1]},"sample_rate":48000'
# Some ten milliseconds on one core; the inputs that this file began with took 15 to 1000 times as long.
MOST_RATIO = 5.0


def names(n: int) -> str:
    return ",".join(f'"a{i}":1' for i in range(n))


def binary(header: str, n_values: int = 0) -> bytes:
    head = header.encode()
    return len(head).to_bytes(8, "little") + head + np.ones(n_values, "<f4").tobytes()


def tensor(name: str, *shape: int) -> bytes:
    n = int(np.prod(shape))
    described = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * n]}
    return binary(json.dumps({name: described, "__metadata__": {"request": f"{{{PATHS}}}"}}), n)


def process_s(kind: Any, body: bytes) -> tuple[float, str]:
    """Seconds to read a body, the least of three, and the code of its refusal."""
    parse, code, spent = (parse_json if body[:1] == b"{" else parse_tensors), "", []
    for _ in range(3):
        began = thread_time()
        try:
            validate(kind, body_fields(parse(body), kind))
        except RequestError as problem:
            code = problem.code
        spent.append(thread_time() - began)
    return min(spent), code


@pytest.fixture(scope="module")
def spectra_s() -> float:
    """Seconds to read two spectra of the largest grid as lists."""
    parts = {part: np.linspace(-1, 1, 32_769).round(5).tolist() for part in ("real", "imag")}
    body = json.dumps({"primary": parts, "secondary": parts, "sample_rate": 48_000}).encode()
    assert len(body) > N_BYTES
    return process_s(DesignBody, body)[0]


def list_of(item: str, n_bytes: int = N_BYTES) -> str:
    return f"[{','.join([item] * (n_bytes // (len(item) + 1)))}]"


def shaped(item: str, n_bytes: int, n_values: int) -> bytes:
    shape, offsets = list_of(item, n_bytes), f"[0,{4 * n_values}]"
    return binary(f'{{"primary":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}', n_values)


def around(controller: str) -> str:
    return f'{{{PATHS},"controller":{{"sample_rate":48000,"sos":{controller}}}}}'


ITEM = '{"k":1}'
IN_METADATA = json.dumps({"__metadata__": {"request": f'{{"primary":{list_of("[]", 900_000)}}}'}})
HOSTILE: dict[str, tuple[Any, str | bytes]] = {
    "lists": (DesignBody, f'{{"primary":{list_of("[]")}}}'),
    "nulls": (DesignBody, f'{{"coherence":{list_of("null")},{PATHS}}}'),
    "signal": (CalibrationBody, f'{{"takes":[{{"gain":0,"x":{list_of("0.1")},"e":[1]}},1],"sample_rate":48000}}'),
    "names": (ExportBody, f'{{"fir":{list_of("1", 4096)},{PATHS},"target":{{{names(4000)}}}}}'),
    "rows": (DesignBody, around(list_of("[1,0,0,1,0,0]"))),
    "curve": (DesignBody, f'{{{PATHS},"max_gain_db":{{"frequency_hz":{list_of("1.5")},"gain_db":[1]}}}}'),
    "depth": (DesignBody, f'{{"a":{499_000 * "["}{499_000 * "]"}}}'),
    "conditions": (DesignBody, f'{{"conditions":{list_of(ITEM, 30_000)}}}'),
    "shape": (DesignBody, shaped("9", 399_000, 9)),
    "shape of ones": (DesignBody, shaped("1", 200, 1)),
    "lists in its request": (DesignBody, binary(IN_METADATA)),
    "tensor of rows": (DesignBody, tensor("controller.sos", 41_666, 6)),
    "tensor of a curve": (DesignBody, tensor("max_gain_db.frequency_hz", 250_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_body_is_refused_soon(name: str, spectra_s: float) -> None:
    kind, body = HOSTILE[name]
    spent_s, code = process_s(kind, body.encode() if isinstance(body, str) else body)
    assert code
    assert spent_s < MOST_RATIO * spectra_s


def test_long_query_is_refused() -> None:
    with pytest.raises(RequestError, match="more than"):
        query_options(b"&".join([b"k=1"] * (MAX_QUERY_FIELDS + 1)), DesignBody)
    with pytest.raises(RequestError):
        validate(DesignBody, query_options(b"max_gain_db=" + b",".join([b"100:1"] * 100_000), DesignBody))
