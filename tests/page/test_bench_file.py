"""Files and requests of the page: command and service read what it writes, bit by bit."""

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from prime_anc.cli.__main__ import main
from prime_anc.inputs import bench, ears
from prime_anc.requests.bodies import DesignBody
from prime_anc.requests.reading import validate_object
from service.api.reading import parse_tensors
from tests.service import models

WORKBENCH = Path(__file__).parents[2] / "service" / "page"
SCHEMA = json.loads((WORKBENCH / "files" / "bench_file.schema.json").read_text())
# Reads documents as the page does when they are dropped, and writes its session.
SCRIPT = """
import { readFileSync } from "node:fs";
import { readBench, sessionDocument } from "./bench_file.mjs";
const settings = { k: "1", ceiling: "30", max_gain_db: "100:20,1000:25", risk_weight: "2", method: "prime" };
const state = { ears: [], kept: [], current: 0, joint: false, settings };
for (const name of process.argv.slice(2)) {
  const found = readBench(name, JSON.parse(readFileSync(name)));
  state.ears.push(...found.ears);
  state.kept.push(...found.kept);
  for (const { design: { controller, controller_about: about } } of found.kept) {
    if (controller) state.controller = { document: controller, ...about };
  }
  const { controller, about, ears, kept, isSession, ...rest } = found;
  if (isSession) Object.assign(state, rest, { controller: controller && { document: controller, ...about } });
}
process.stdout.write(JSON.stringify(sessionDocument(state)));
"""


def as_float32(values: np.ndarray) -> dict[str, str]:
    return {"float32": base64.b64encode(values.astype("<f4").tobytes()).decode()}


def run(*arguments: object) -> None:
    found = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert found.exit_code == 0, found.output


def page_session(folder: Path, *files: Path) -> dict[str, Any]:
    """The session that the page saves after loading files."""
    node = shutil.which("node") or pytest.skip("node is not on PATH")
    (folder / "bench_file.mjs").write_text((WORKBENCH / "files" / "bench_file.js").read_text())
    (folder / "script.mjs").write_text(SCRIPT)
    done = subprocess.run([node, folder / "script.mjs", *files], capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return document


def test_session_returns_same_taps_bit_by_bit(tmp_path: Path) -> None:
    """A measurement and a design go page, file, command, file, page."""
    primary, secondary = models.responses(7)
    ear, filter_file, session, again = (tmp_path / f"{name}.json" for name in ("ear", "filter", "session", "again"))
    coherence, curve = np.float32(np.linspace(0.6, 0.99, 16385)).tolist(), tmp_path / "curve.csv"
    verdict = {"passed": False, "reasons": [{"code": "hum", "detail": "tones"}]}
    measurement = {"primary": {"impulse_response": primary.tolist()}, "secondary": secondary.tolist()}
    ear.write_text(json.dumps(measurement | {"coherence": coherence, "sign": "plus", "verdict": verdict}))
    curve.write_text("100 20\n1000 25\n")
    run("design", ear, "-k", 1, "--max-gain-db", curve, "--risk-weight", 2, "-o", filter_file)
    designed = json.loads(filter_file.read_text())
    saved = page_session(tmp_path, ear, filter_file)
    fir = np.frombuffer(base64.b64decode(saved["kept"][0]["design"]["fir"]["float32"]), "<f4")
    np.testing.assert_array_equal(fir, np.float32(designed["fir"]))
    assert saved["session"][0]["sign"] == saved["kept"][0]["design"]["sign"] == "plus"
    noise = {"name": "hum.wav", "psd": as_float32(np.eye(1, 16385, 80) + 1e-6)}
    for more, is_same in ((saved | {"noise": noise}, False), (saved, True)):
        session.write_text(json.dumps(more))
        run("design", session, "-o", again)  # the session's options
        found = json.loads(again.read_text())
        assert (found["fir"] == designed["fir"], found["sign"]) == (is_same, "plus")
    assert ears.verdicts(session) == [(f"session.json, {ear}", verdict)]
    run("evaluate", f"{session}#{filter_file}", session)
    run("session", ear, filter_file, "-o", session)
    from_command = json.loads(session.read_text())
    jsonschema.validate(from_command, SCHEMA)
    back = page_session(tmp_path, session)
    assert back["session"][0] == from_command["session"][0] == saved["session"][0] | {"label": "ear"}
    assert back["kept"][0]["design"] == saved["kept"][0]["design"]


def test_session_of_page_stays_whole(tmp_path: Path) -> None:
    """A controller with its plants, recordings, kept designs and settings; the command designs the same filter."""
    ear, both, session, again = (tmp_path / f"{name}.json" for name in ("ear", "both", "session", "again"))
    primary, secondary = (response.tolist() for response in models.responses(7))
    ear.write_text(json.dumps({"primary": primary, "secondary": secondary}))
    controller = ("--no-lend-wearing", "--controller-n-sections", 2)
    run("hybrid", ear, *controller, "-o", both)
    designed = json.loads(both.read_text())
    saved = page_session(tmp_path, ear, both)
    assert saved["controller"]["sos"] == designed["controller"]["sos"]
    assert [item["code"] for item in saved["controller_about"]["warnings"]] == ["plant_unknown"]
    plants = saved["controller_about"]["plants"]
    assert plants == [designed["loop"]["conditions"][0] | {"label": "ear"}]
    session.write_text(json.dumps(saved | {"settings": {}}))
    run("design", session, "-o", again)
    assert json.loads(again.read_text())["fir"] == designed["fir"]
    take = {"name": "off.wav", "role": "off", "rate": 44_100, "clipped_shares": [0, 0]}
    take["channels"] = [as_float32(np.ones(3072))] * 2
    chip = {"name": "chip.json", "document": {"coefficients": {"form": "fir", "sample_rate": 48_000}}}
    saved |= {"session": 2 * saved["session"], "current": 1, "takes": [take], "runs": [take], "chip": chip}
    session.write_text(json.dumps(saved))
    run("session", session, again, "-o", session)
    back = page_session(tmp_path, session)
    assert back | {"kept": back["kept"][:1]} == saved
    assert back["kept"][1]["design"]["controller_about"]["plants"] == plants
    assert "the measurement chosen on the page" in " ".join(ears.ears(session)[1])
    saved["session"][0] = saved["session"][0] | {"label": "pressed", "used": False, "stability_only": True}
    session.write_text(json.dumps(saved | {"joint": True}))
    run("hybrid", session, *controller, "-o", again)
    assert "pressed" in {item["label"] for item in json.loads(again.read_text())["loop"]["conditions"]}


def test_session_without_measurement_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"session": [{"label": "x"}], "kept": []}))
    found = CliRunner().invoke(main, ["design", str(tmp_path / "s.json")])
    assert found.exit_code == 2
    assert "no measurement in use" in found.output
    found = CliRunner().invoke(main, ["evaluate", str(tmp_path / "s.json"), str(tmp_path / "s.json")])
    assert "keeps no filter" in found.output or "no measurement in use" in found.output


def test_session_sets_only_options_with_an_effect() -> None:
    """As the page does: texts without a value, and options that no measurement gives an effect, are left out."""
    settings = {
        "k": "1",
        "ceiling": "25",
        "volume": "-20",
        "exact": "true",
        "snr_db": "",
        "min_gain_margin_db": "9",
    }
    bare = {"primary": [0.0, 1.0], "secondary": [1.0]}
    both = {"k": 1, "max_gain_db": 25.0}
    assert bench.settings(Path("s.json"), {"settings": settings}, [bare]) == both | {"exact": True}
    with_loop = bare | {"coherence": [0.5], "feedback": [0.0, 0.1]}
    found = bench.settings(Path("s.json"), {"settings": settings}, [with_loop])
    assert found == both | {"min_gain_margin_db": 9}


TENSORS = WORKBENCH / "files" / "tensors.js"
ENCODE = """
import { encoded } from "%s";
const ear = (gain) => ({ primary: Float32Array.of(0, gain), secondary: Float32Array.of(1, 0.5) });
const request = { sample_rate: 48000, k: 2, conditions: [{ ...ear(1), label: "\u00e9" }, { ...ear(2), weight: 3 }] };
process.stdout.write(Buffer.from(await new Blob(encoded(request)).arrayBuffer()));
"""


def test_page_encodes_requests(tmp_path: Path) -> None:
    node = shutil.which("node") or pytest.skip("node is not on PATH")
    (tmp_path / "tensors.mjs").write_text(TENSORS.read_text())
    script = tmp_path / "script.mjs"
    script.write_text(ENCODE % "./tensors.mjs")
    done = subprocess.run([node, str(script)], capture_output=True, check=True)
    found = validate_object(DesignBody, parse_tensors(done.stdout))
    assert (found.k, [condition.label for condition in found.conditions]) == (2, ["é", ""])
    assert [condition.weight for condition in found.conditions] == [1, 3]
    np.testing.assert_array_equal(found.conditions[1].primary, np.float32([0, 2]))
