"""The page in a real Chromium: files, recordings, sessions, its own probes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import lfilter

from tests.page.driving import PATIENCE_MS, drop, slide, state, until, wait_for, wait_until_drawn, with_example


def test_bad_sessions_change_nothing(page: Any, tmp_path: Path):
    with_example(page)
    wait_until_drawn(page)
    before = page.evaluate("JSON.stringify([window.workbench.state.ears.length, window.workbench.state.current])")
    path = {"impulse_response": [1.0]}
    ear = {"label": "x", "used": True, "sign": "minus", "primary": path, "secondary": path}
    for change in (
        {"current": 99},
        {"kept": [{"name": "x", "design": {"fir": [0.0] * 2048}}]},
        {"kept": [{"name": "x", "design": {"fir": [0.0] * 2047 + [None]}}]},
        {"session": [ear, {**ear, "secondary": {}}]},
        {"session": [{**ear, "primary": {"impulse_response": {"length": 150_000_000}}}]},
        {"session": [{**ear, "coherence": {"length": 150_000_000}}]},
    ):
        (tmp_path / "bad.json").write_text(json.dumps({"session": [ear], "settings": {}} | change))
        page.set_input_files("#files", [tmp_path / "bad.json"])
        wait_for(page, "#messages", "bad.json: ")
        page.evaluate("document.getElementById('messages').replaceChildren()")
        now = "JSON.stringify([window.workbench.state.ears.length, window.workbench.state.current])"
        assert page.evaluate(now) == before
    (tmp_path / "good.json").write_text(json.dumps({"session": [ear], "settings": {"risk_weight": "2", "k": "1"}}))
    page.set_input_files("#files", [tmp_path / "good.json"])
    wait_for(page, "#messages", "it sets risk_weight, which this page leaves")
    until(page, "ears.length === 1")
    assert state(page, "ears[0].label") == "x"


def test_recordings_are_calibrated(page: Any, tmp_path: Path):
    random = np.random.default_rng(0)
    decay = np.exp(-np.arange(400) / 40)
    for name, gain in (("off", 0.0), ("on", 0.35)):
        outer = 0.05 * random.standard_normal(5 * 48_000)
        error = lfilter(decay * 0.1, 1, outer) - gain * lfilter(np.r_[0, 0, decay[:200]], 1, outer)
        soundfile.write(tmp_path / f"{name}.wav", np.stack([outer, error], 1), 48_000, subtype="FLOAT")
    page.set_input_files("#files", [tmp_path / "off.wav", tmp_path / "on.wav"])
    page.wait_for_selector("#recording-rows tr:nth-child(2)")
    page.fill("#gain", "")
    page.click("#calibrate")
    wait_for(page, "#messages", "write into “Gain that was played”")
    page.fill("#gain", "0,35")
    page.click("text=Try again")
    assert page.input_value("#gain") == "0.35"
    wait_for(page, "#verdict", "The calibration passed.")
    wait_for(page, "#figures", "Noise reduction")
    page.fill("#condition-list input[type=text]", "left")
    page.press("#condition-list input[type=text]", "Enter")
    page.click("#calibrate")
    until(page, "ears.length === 2")  # "left" is kept
    page.click("#calibrate")
    wait_for(page, "#messages", "the new measurement replaces the old one")
    page.click("text=Keep both")
    assert state(page, "ears.length") == 3
    for name in ("off", "on"):
        (tmp_path / f"{name}.wav").rename(tmp_path / f"other {name}.wav")
    page.set_input_files("#files", [tmp_path / "other off.wav", tmp_path / "other on.wav"])
    until(page, "takes.length === 2 && takes.every(({ name }) => name.startsWith('other'))")
    page.click("text=Calibrate all together")
    assert state(page, "takes.length") == 4
    page.click("[aria-label='Remove left']")
    assert state(page, "ears.length") == 2
    page.click("text=Put back")
    assert state(page, "ears[0].label") == "left"


def test_clipping_is_judged_as_recorded(page: Any, tmp_path: Path):
    """This also holds for a take of the loudspeaker alone, at a rate that the browser resamples."""
    random = np.random.default_rng(0)
    decay = np.exp(-np.arange(400) / 40)
    for name in ("off", "drive"):
        played = 0.05 * random.standard_normal(5 * 44_100)
        sound = lfilter(decay * 0.1, 1, played)
        clipped = np.clip(sound, -sound.std(), sound.std())
        takes = np.stack([played, sound] if name == "off" else [played, clipped, sound], 1)
        soundfile.write(tmp_path / f"{name}.flac", takes, 44_100, subtype="PCM_24")
    page.set_input_files("#files", [tmp_path / "off.flac", tmp_path / "drive.flac"])
    page.wait_for_selector("#recording-rows tr:nth-child(2)")
    wait_for(page, "#messages", "off.flac: resampled from 44100 to 48000 Hz")
    page.click("#calibrate")
    wait_for(page, "#verdict", "clipping: drive.flac, x")
    wait_for(page, "#condition-list", "did not pass")
    for step in ("design", "load"):
        wait_for(page, f"#step-{step} .state.failed", "calibration did not pass")
    wait_for(page, "#warnings", "it did not pass (clipping")
    wait_for(page, "#figures .word", "poor")
    page.click("[aria-label='Remove off.flac']")
    page.click("#calibrate")
    wait_for(page, "#messages", "it needs a recording with the loudspeaker off")
    assert page.is_hidden("#verdict")


def test_new_mistakes_stand_above_notes(page: Any, tmp_path: Path):
    """Notes on recordings that were removed are gone; a file or a calibration tried again starts anew."""
    names = [f"{n}.wav" for n in range(6)]
    for name in (*names, "off.wav", "other.wav"):
        noise = 0.1 * np.random.default_rng(0).standard_normal((5 * 44_100, 2))
        soundfile.write(tmp_path / name, noise, 48_000 if name == "other.wav" else 44_100)
    page.set_input_files("#files", [tmp_path / name for name in names])
    page.wait_for_selector("#messages li:nth-child(6)")
    page.click("[aria-label='Remove 0.wav']")
    wait_for(page, "#messages li:first-child", "Put back")
    assert "0.wav: resampled" not in page.text_content("#messages")
    page.click("#clear-takes")
    page.set_input_files("#files", [tmp_path / name for name in ("off.wav", "other.wav")])
    wait_for(page, "#messages li:first-child", "other.wav: it is at 48000 Hz, off.wav at 44100 Hz")
    page.click("#calibrate")
    wait_for(page, "#messages li:first-child", "Calibration: it needs")
    assert [text[:5] for text in page.locator("#messages li span").all_text_contents()] == [
        *("Calib", "other", "off.w", "0.wav")
    ]
    page.click("#clear-takes")
    page.set_input_files("#files", [tmp_path / "other.wav"])
    page.wait_for_selector("#recording-rows tr")
    assert "other.wav" not in page.text_content("#messages")


def test_unusable_files_are_named(page: Any, tmp_path: Path):
    soundfile.write(tmp_path / "mono.wav", np.ones(4800) * 0.1, 48_000)
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    soundfile.write(tmp_path / "silent.wav", np.stack([np.ones(4800), np.zeros(4800)], 1), 48_000)
    with soundfile.SoundFile(tmp_path / "hours.wav", "w", 8000, 2, "PCM_U8") as file:
        file.write(np.zeros((70 * 8000, 2)))
    for name in ("cut.wav", "cut.flac"):
        noise = 0.1 * np.random.default_rng(0).standard_normal((2 * 48_000, 2))
        soundfile.write(tmp_path / name, noise, 48_000, subtype="PCM_24")
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.json").write_text("")
    expected = {
        "empty.json": "it is no JSON, or was cut off",
        "mono.wav": "one channel",
        "broken.wav": "no readable audio",
        "silent.wav": "channel 2 is silent",
        "hours.wav": "it lasts 70 s",
        "cut.wav": "the file holds",
        "cut.flac": "it was cut off",
    }
    drop(page, [tmp_path / name for name in expected])
    page.wait_for_selector(f"#messages li:nth-child({len(expected)})")
    for text, (name, message) in zip(
        page.locator("#messages li").all_text_contents()[::-1], expected.items(), strict=True
    ):
        assert text.startswith(f"{name}: ")
        assert message in text.replace("not a readable audio file", "no readable audio")


def test_work_stays_until_thrown_away(page: Any, tmp_path: Path):
    soundfile.write(tmp_path / "off.wav", np.random.default_rng(0).uniform(-0.1, 0.1, (4800, 2)), 48_000)
    page.set_input_files("#files", [tmp_path / "off.wav"])
    page.wait_for_selector("#recording-rows tr")
    with_example(page)
    page.click("#keep")
    slide(page, "ceiling", 20)
    wait_until_drawn(page)
    page.wait_for_timeout(500)  # longer than the pause before writing
    designed = page.evaluate("window.workbench.state.design.fir")
    dialogs: list[str] = []
    page.once("dialog", lambda dialog: (dialogs.append(dialog.type), dialog.accept()))
    page.reload()
    assert dialogs == ["beforeunload"]
    wait_for(page, "#messages", "your work of the last visit is back")
    wait_for(page, "#figures", "Wiener filter")
    assert state(page, "[ears.length, takes.length, kept.length]") == [2, 1, 1]
    assert page.evaluate("window.workbench.state.design.fir") == designed
    page.once("dialog", lambda dialog: dialog.accept())
    with page.expect_navigation():
        page.click("#throw-away")
    page.wait_for_selector("body[data-ready]")
    assert state(page, "[ears.length, takes.length, kept.length]") == [0, 0, 0]


@pytest.mark.parametrize(("probe", "slip_ppm"), [("pink", 0), ("sweep", 20)])
def test_page_records_its_own_probe(browser: Any, url: str, probe: str, slip_ppm: float):
    """The paths of a fake sound device come back without its latency, or the slip of its clock is told."""
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(path=Path(__file__).parent / "fake_earphone.js")
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    decay = np.exp(-np.arange(400) / 40)
    paths = {
        "primary": 0.3 * np.r_[np.zeros(4), decay * np.sin(np.arange(400) / 7)],
        "secondary": 0.5 * np.r_[0, 0, decay],
        "feedback": np.r_[np.zeros(12), decay / 200],
    }
    page.evaluate(
        "(values) => Object.assign(window.fake, values)",
        {name: path.tolist() for name, path in paths.items()} | {"slip_ppm": slip_ppm},
    )
    page.click("#record-here > summary")
    page.click("#microphones")
    page.wait_for_selector("#record:not([disabled])")
    page.fill("#probe-seconds", "4")
    page.select_option("#probe", probe)
    for n, (what, gain) in enumerate((("off", 1), ("drive", 0.001))):
        page.evaluate(f"window.fake.gain.value = {gain}")
        page.select_option("#record-what", what)
        page.click("#record:not([disabled])")
        until(page, f"takes.length === {n + 1}")
    found = wait_for(page, "#record-state", "clock slip").split("clock slip ")[1]
    assert abs(float(found.split(" ppm")[0]) - slip_ppm) < 1
    if slip_ppm:
        wait_for(page, "#messages", "different clocks")
        return
    page.click("#calibrate")
    wait_for(page, "#verdict", "The calibration passed.")
    for name, path in paths.items():
        response = np.array(state(page, f"Array.from(ears[0].{name})"))
        spectra = [np.fft.rfft(item, 8192)[10:1366] for item in (response, path)]
        assert np.linalg.norm(spectra[0] - spectra[1]) < 0.02 * np.linalg.norm(spectra[1])
