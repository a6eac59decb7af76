"""POST /verify with a controller beside the filter: its state, and a trim that keeps its loop."""

import numpy as np
import pytest

from tests.measure.test_verify_controller import controller, ear, recorded, taps
from tests.model_store.cases import controller as published
from tests.service.bodies import post_packed

__all__ = ["controller", "ear", "taps"]
pytestmark = pytest.mark.anyio


async def test_controller_is_verified_by_name(app, client, ear, taps, controller):
    gain = 1.25
    body = {name: path.astype(np.float32) for name, path in zip(("primary", "secondary"), ear, strict=True)}
    sections = controller.sections
    running = {"sos": sections.rows.tolist(), "sample_rate": 48_000.0, "latency_us": 1e6 * controller.latency_s}
    app.state.service.engine.store.publish("worn", published(**running))
    takes = [
        {"state": "on" if item.is_on else "off", "x": item.x.astype(np.float32), "e": item.e.astype(np.float32)}
        for item in recorded(ear, taps, controller, gain)
    ]
    body |= {"fir": taps, "controller": "worn", "takes": takes, "sample_rate": 48_000}
    answer = await post_packed(client, "/verify", body)
    found = answer.json()
    assert answer.status_code == 200, found
    codes = [item["code"] for item in found["diagnosis"]]
    assert [item for item in codes if item.startswith("controller")] == ["controller_level_off"]
    trimmed = np.array(found["trim"]["controller"]["sos"])
    assert trimmed[0, 0] * gain == pytest.approx(sections.rows[0, 0], rel=0.1)
