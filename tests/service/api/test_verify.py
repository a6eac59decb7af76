"""POST /verify: recordings with the filter off and on, a diagnosis and a trimmed filter."""

import httpx
import numpy as np
import pytest

from prime_anc.method.types import Paths
from tests.service.bodies import Json, as_responses, ask_packed, post_packed
from tests.service.recordings import off_and_on


def takes(ear: Paths, fir: list[float], change: float = 1.0, delay: int = 0) -> list[Json]:
    """The paths from the loudspeaker have changed by a factor and a delay."""
    return off_and_on(ear.primary, np.convolve(fir, np.pad(change * ear.secondary, (delay, 0))))


@pytest.fixture
async def design(client: httpx.AsyncClient, ear: Paths) -> Json:
    return await ask_packed(client, "/refine?k=0", as_responses(ear))


async def test_unchanged_filter_is_as_predicted(client: httpx.AsyncClient, ear: Paths, design: Json) -> None:
    """Also by a prediction that is not sent but made again, from the same paths."""
    body = as_responses(ear, fir=design["fir"], takes=takes(ear, design["fir"]))
    predicted = design["prediction"]
    for sent in ({"prediction": predicted}, {}):
        found = await ask_packed(client, "/verify", body | sent)
        assert [each["code"] for each in found["diagnosis"]] == ["as_predicted"]
        expected_db = pytest.approx(predicted["mean_noise_reduction_db"], abs=1e-3)
        assert found["predicted_noise_reduction_db"] == expected_db
        assert found["predicted_interval_db"] == pytest.approx(predicted["interval_db"], abs=1e-3)
        deviation_db = found["measured"]["mean_noise_reduction_db"] - found["predicted_noise_reduction_db"]
        assert found["deviation_db"] == pytest.approx(deviation_db)
        assert abs(found["trim"]["gain_db"]) < 0.1


async def test_trim_equals_design_for_changed_path(client: httpx.AsyncClient, ear: Paths, design: Json) -> None:
    changed = takes(ear, design["fir"], -1.2, 2)
    trim = (await ask_packed(client, "/verify", as_responses(ear, fir=design["fir"], takes=changed, snr_db=20)))[
        "trim"
    ]
    assert trim["invert"] is True
    assert (trim["gain_db"], trim["delay_samples"]) == pytest.approx((-1.58, -2), abs=0.1)
    now = as_responses(ear, snr_db=20)
    now["secondary"] = {"impulse_response": np.pad(-1.2 * ear.secondary, (2, 0)).tolist()}
    best = (await ask_packed(client, "/refine?k=1", now))["prediction"]["mean_noise_reduction_db"]
    reached = (await ask_packed(client, "/evaluate", now | {"fir": trim["fir"]}))["prediction"]
    assert reached["mean_noise_reduction_db"] > best - 0.5
    assert trim["predicted_noise_reduction_db"] == pytest.approx(reached["mean_noise_reduction_db"], abs=0.3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"takes": []}, "takes"),
        ({"takes": [{"state": "off", "x": [0.0], "e": [0.0]}] * 2}, "takes.0"),
        ({"takes": [{"state": "up", "x": [0.0], "e": [0.0]}] * 2}, "takes.0.state"),
        ({"takes": [{"state": "off", "x": {"wav": "?"}, "e": [0.0]}] * 2}, "takes.0.x.wav"),
        ({"prediction": {"mean_noise_reduction_db": 20}}, "prediction"),
    ],
)
async def test_invalid_verification_names_field(
    client: httpx.AsyncClient, ear: Paths, change: Json, field: str
) -> None:
    one = {"x": np.ones(40_000), "e": np.ones(40_000)}
    good = as_responses(ear, fir=[0.5] * 2048, takes=[one | {"state": state} for state in ("off", "on")])
    answer = await post_packed(client, "/verify", good | change)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field
