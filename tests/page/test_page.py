"""The page in a real Chromium: the example, files, sliders, sound, comparison, export, verification, keys alone.

Needs the package playwright and a Chromium on PATH; skipped without them.
"""

import json
import re
import shutil
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import lfilter, sosfilt, welch

from benchmarks.service_process import started_service

sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (`make programs` fetches it)")

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--autoplay-policy=no-user-gesture-required"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
)
PATIENCE_MS = 60_000
PATHS = ("primary", "secondary")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service with the bundled model."""
    with started_service(None, "--deadline-ms", "60000") as service:
        yield f"http://127.0.0.1:{service.port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """A fresh page that must log no error and contact no other host."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    hosts: set[str] = set()
    page.on("console", lambda item: complaints.append(item.text) if item.type in ("error", "warning") else None)
    page.on("pageerror", lambda item: complaints.append(str(item)))
    page.on("request", lambda item: hosts.add(item.url.split("/")[2]) if "//" in item.url else None)
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    yield page
    assert complaints == []
    assert hosts == {url.split("/")[2]}
    context.close()


def wait_for(page: Any, selector: str, text: str) -> str:
    """Wait until an element's text contains a text, and return it."""
    expected = sync_api.expect(page.locator(selector))
    expected.to_contain_text(text, timeout=PATIENCE_MS)
    found: str = page.text_content(selector)
    return found


def with_example(page: Any) -> None:
    """Load the example listener, and wait for its design and the Wiener filter."""
    page.click("#example")
    wait_for(page, "#figures", "Wiener filter")


def open_step(page: Any, name: str) -> None:
    """Unfold a step of the bench."""
    page.click(f"#step-{name} > summary")


def state(page: Any, expression: str) -> Any:
    """Evaluate an expression in the page's state."""
    return page.evaluate(
        "(({ ears, takes, kept, noise, controller, design, realised, verification }) => "
        f"{expression})(window.workbench.state)"
    )


def until(page: Any, expression: str) -> None:
    """Wait until an expression in the page's state is true; the page's policy forbids that the browser waits."""
    for _ in range(PATIENCE_MS // 50):
        if state(page, expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(expression)


def slide(page: Any, name: str, value: float) -> None:
    """Set a slider as a user does: the value, then the events."""
    page.locator(f"#{name}").fill(str(value))


def wait_until_drawn(page: Any) -> None:
    """Wait until the last request is answered."""
    page.evaluate("window.workbench.redesign.done")
    wait_for(page, "#status", "Designed and drawn")
    page.wait_for_load_state("networkidle")


def test_sliders_redesign_and_undo(page: Any):
    with_example(page)
    before = page.text_content("#figures")
    slide(page, "ceiling", -6)
    wait_for(page, "#figures", "Largest |W|-")
    wait_until_drawn(page)
    assert page.text_content("#figures") != before
    page.click("#undo")
    wait_for(page, "#figures", before.split(" dB")[0])
    assert page.input_value("#ceiling") == "30"


def test_filter_equals_other_clients(page: Any, url: str):
    with_example(page)
    open_step(page, "measure")
    page.check("#joint")
    wait_for(page, "#figures", "right ear")
    wait_until_drawn(page)
    example = json.loads(urllib.request.urlopen(f"{url}workbench/example.json").read())
    ears = [
        {name: np.frombuffer(b64decode(ear[name]["float32"]), "<f4").tolist() for name in (*PATHS, "uncertainty")}
        for ear in example.values()
    ]
    for ear in ears:
        ear |= {name: {"impulse_response": ear[name]} for name in PATHS}
    body = {"sample_rate": 48_000, "conditions": ears}
    request = urllib.request.Request(
        f"{url}refine", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    expected = json.loads(urllib.request.urlopen(request).read())["fir"]
    np.testing.assert_array_equal(page.evaluate("window.workbench.state.design.fir"), expected)


def rendered(page: Any, noise: str, name: str, seconds: int) -> np.ndarray:
    """The sound as samples; as a list of numbers they would take seconds."""
    script = f"""window.workbench.render('{noise}', '{name}', {seconds}).then((samples) => {{
        const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
        let text = "";
        for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
        return btoa(text);
    }})"""
    return np.frombuffer(b64decode(page.evaluate(script)), "<f4").astype(float)


def test_sound_matches_plot(page: Any):
    with_example(page)
    sound = {name: rendered(page, "white", name, 4) for name in ("passive", "active")}
    spectra = {}
    for name, samples in sound.items():
        frequency, spectra[name] = welch(samples[16_384:], 48_000, nperseg=16_384)
    drawn = page.evaluate("window.workbench.state.design.prediction")
    errors = []
    for hz, promised in zip(drawn["band_centre_hz"], drawn["noise_reduction_db"], strict=True):
        centre = 10 ** (round(10 * np.log10(hz)) / 10)
        inside = (frequency >= centre * 10**-0.05) & (frequency < centre * 10**0.05)
        errors.append(10 * np.log10(spectra["passive"][inside].sum() / spectra["active"][inside].sum()) - promised)
    assert np.abs(errors).max() < 2  # a band of 50 Hz has four bins, which hear its neighbour
    assert np.abs(errors).mean() < 0.3


def test_recorded_noise_keeps_its_power(page: Any, tmp_path: Path):
    samples = 0.1 * np.random.default_rng(0).standard_normal(4 * 48_000)
    soundfile.write(tmp_path / "cabin.wav", samples, 48_000, subtype="FLOAT")
    page.set_input_files("#noise-file", tmp_path / "cabin.wav")
    until(page, "!!noise")
    assert sum(state(page, "Array.from(noise.psd)")) == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("unit", [1e4, 1e-4])
def test_sound_stays_below_full_scale(page: Any, unit: float):
    with_example(page)
    wait_until_drawn(page)
    scale = f"for (const name of ['primary', 'secondary']) ear[name] = ear[name].map((value) => {unit} * value)"
    page.evaluate(f"() => {{ const ear = window.workbench.state.ears.at(-1); {scale}; }}")
    levels = {}
    for name in ("open", "passive", "active"):
        sound = rendered(page, "white", name, 1)
        assert np.abs(sound).max() <= 10 ** (-1 / 20) + 1e-6
        levels[name] = 20 * np.log10(np.std(sound))
    assert abs(levels["passive"] - levels["open"]) < 1
    assert levels["active"] < levels["passive"]
    page.evaluate("window.workbench.state.design.prediction.noise_reduction_db.fill(-80)")
    sound = rendered(page, "white", "active", 1)
    assert 0.5 < np.abs(sound).max() <= 10 ** (-1 / 20) + 1e-6


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


def drop(page: Any, files: list[Path]) -> None:
    """Drop files onto the page's heading, which is no particular place for them."""
    sent = [{"name": file.name, "base64": b64encode(file.read_bytes()).decode()} for file in files]
    page.evaluate(
        """(sent) => {
        const dataTransfer = new DataTransfer();
        for (const { name, base64 } of sent) {
            const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
            dataTransfer.items.add(new File([bytes], name));
        }
        const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
        document.querySelector("h1").dispatchEvent(event);
        if (!event.defaultPrevented) throw new Error("the browser would leave the page");
    }""",
        sent,
    )


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


def test_designs_are_kept_exported_and_restored(page: Any, browser: Any, url: str, tmp_path: Path):
    with_example(page)
    page.click("#keep")
    assert state(page, "kept[0].name") == "left ear, prime, k 3, 30 dB"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "left ear, prime" not in wait_for(page, "#report-tables", "designed, dB")  # a report is about one filter
    open_step(page, "load")
    wait_for(page, "#realised", "8 sections")
    slide(page, "sections", 4)
    wait_for(page, "#realised", "4 sections")
    with page.expect_download() as started:
        page.click("#download")
    started.value.save_as(tmp_path / "filter.h")
    assert "control_filter[4][5]" in (tmp_path / "filter.h").read_text()
    with page.expect_download() as started:  # before the figures of the new form
        page.select_option("#form", "fir")
        page.select_option("#taps", "512")
        assert page.text_content("#realised") == "Computing ..."
        page.click("#download")
    started.value.save_as(tmp_path / "filter.h")
    assert started.value.suggested_filename == "left_ear_512_taps_float32.h"
    assert "control_filter[512]" in (tmp_path / "filter.h").read_text()
    page.select_option("#target", "pinebuds-pro")
    wait_for(page, "#realised", "headroom")
    assert state(page, "realised.coefficients.sample_rate") == 50781.25
    page.select_option("#target", "adau1761")
    assert page.input_value("#file") == "sigmadsp"
    page.select_option("#format", "q1.23")
    assert page.input_value("#file") == "c"
    page.select_option("#file", "mat")
    page.select_option("#target", "pinebuds-pro")
    page.select_option("#file", "mat")
    open_step(page, "design")
    slide(page, "k", 1)
    wait_until_drawn(page)
    with page.expect_download() as started:
        page.click("#save")
    started.value.save_as(tmp_path / "session.json")
    assert json.loads((tmp_path / "session.json").read_text())["settings"]["k"] == "1"
    other = browser.new_context().new_page()  # with nothing kept
    other.goto(url)
    other.wait_for_selector("body[data-ready]")
    other.set_input_files("#files", [tmp_path / "session.json"])
    wait_for(other, "#figures", "Noise reduction")
    assert [other.input_value(name) for name in ("#k", "#file")] == ["1", "mat"]
    assert state(other, "[kept[0].name, ears.length]") == ["left ear, prime, k 3, 30 dB", 2]
    assert other.evaluate("window.workbench.state.design.fir") == page.evaluate("window.workbench.state.design.fir")
    other.context.close()


def test_device_sets_number_of_sections(page: Any):
    """But for one that was typed, as far as it holds that."""
    with_example(page)
    open_step(page, "load")
    for device, n, typed in (("openearable-2", 5, None), ("minidsp", 8, 7), ("pinebuds-pro", 6, 3), ("", 3, None)):
        page.select_option("#target", device)
        assert page.input_value("#sections") == page.text_content("output[for=sections]") == str(n)
        if typed:
            slide(page, "sections", typed)


def test_recordings_verify_exported_sections(page: Any, tmp_path: Path):
    with_example(page)
    wait_until_drawn(page)
    open_step(page, "verify")
    until(page, "!!realised")
    primary, secondary, sos = (
        np.array(state(page, text))
        for text in ("Array.from(ears[0].primary)", "Array.from(ears[0].secondary)", "realised.coefficients.sos")
    )
    outer = 0.1 * np.random.default_rng(0).standard_normal(5 * 48_000)
    passive = np.convolve(outer, primary)[: len(outer)]
    active = passive - np.convolve(sosfilt(sos, outer), secondary)[: len(outer)]
    for name, error in (("quiet", passive), ("running", active)):
        soundfile.write(tmp_path / f"{name}.wav", np.stack([outer, error], 1), 48_000, subtype="FLOAT")
    page.set_input_files("#files", [tmp_path / "quiet.wav", tmp_path / "running.wav"])
    page.select_option("[aria-label='loudspeaker during running.wav']", "off")
    page.click("#verify")
    wait_for(page, "#messages", "it needs a recording with the filter off, and one with it on")
    page.select_option("[aria-label='loudspeaker during running.wav']", "on")
    page.click("#verify")
    text = wait_for(page, "#verification", "measured")
    assert "as exported: 8 sections" in text
    assert "it needs a recording" not in page.text_content("#messages")
    wait_for(page, "#figures", "Measured, as exported: 8 sections")
    assert "as predicted" in text
    assert page.text_content("#verification .word") == "good"
    predicted = state(
        page, "[verification.answer.predicted_noise_reduction_db, realised.prediction.mean_noise_reduction_db]"
    )
    assert abs(predicted[0] - predicted[1]) < 0.2
    page.select_option("[aria-label='loudspeaker during running.wav']", "off")
    until(page, "document.querySelector('#verification').hidden")  # a verdict is on the recordings as they were


def test_controller_stays_while_filter_changes(page: Any, browser: Any, url: str, tmp_path: Path):
    """A session brings it and the recordings back."""
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, (4800, 2))
    soundfile.write(tmp_path / "off.wav", noise, 48_000, subtype="FLOAT")
    page.set_input_files("#files", [tmp_path / "off.wav"])
    with_example(page)
    alone = state(page, "design.prediction.mean_noise_reduction_db")
    page.check("#hybrid")
    until(page, "!!design.controller")
    found = state(page, "[controller.document.sos, design.prediction.mean_noise_reduction_db]")
    assert found[1] > alone
    wait_for(page, "#figures", "Wiener filter alone")
    page.click("text=Options of the controller")
    page.uncheck("#lend_wearing")
    until(page, "design.warnings.some(({ code }) => code === 'plant_unknown')")
    wait_until_drawn(page)
    wait_for(page, "#warnings", "plant_unknown")
    found = state(page, "[controller.document.sos]")
    slide(page, "ceiling", 10)
    until(page, "design.prediction.max_gain_db < 10.2")
    wait_until_drawn(page)
    assert state(page, "design.controller.sos") == found[0]
    open_step(page, "measure")
    page.check("#joint")
    until(page, "design.prediction.conditions?.length === 2")
    page.uncheck("#joint")
    until(page, "!design.prediction.conditions")
    wait_until_drawn(page)
    open_step(page, "design")
    page.click("#keep")
    with page.expect_download() as started:
        page.click("#save")
    started.value.save_as(tmp_path / "session.json")
    other = browser.new_context().new_page()
    other.goto(url)
    other.wait_for_selector("body[data-ready]")
    other.set_input_files("#files", [tmp_path / "session.json"])
    until(other, "!!design?.controller")
    assert state(other, "design.fir") == state(page, "design.fir")
    assert other.text_content("#plants") == page.text_content("#plants") != ""
    wait_for(other, "#controller-text", "for these measurements")
    wait_for(other, "#warnings", "plant_unknown")
    np.testing.assert_array_equal(state(other, "Array.from(takes[0].channels[1])"), np.float32(noise[:, 1]))
    other.click("text=Use its K")
    wait_for(other, "#controller-text", "K of left ear")
    assert other.text_content("#plants") == page.text_content("#plants")
    other.context.close()
    open_step(page, "load")
    page.select_option("#target", "openearable-2")  # and the controller is for its chip
    until(page, "design.controller.sample_rate === 192000")


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
    page.fill("#probe-seconds", "5")
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


def test_plot_reads_by_keys(page: Any):
    with_example(page)
    page.focus("#plot-nr")
    page.keyboard.press("ArrowRight")
    assert "designed" in wait_for(page, "#readout-nr", "Wiener")
    page.keyboard.press("Escape")
    assert page.text_content("#readout-nr") == ""


def test_limit_of_louder_bands_is_requested(page: Any):
    with_example(page)
    for text, answer in (("none", "write a number"), ("0,5", "Designed and drawn")):
        page.fill("#max_louder_db", text)
        page.press("#max_louder_db", "Enter")
        wait_for(page, "#status", answer)
    until(page, "design.max_louder_db === 0.5")


def test_terms_and_guide_open(page: Any, url: str):
    page.focus("[popovertarget=terms]")
    page.keyboard.press("Enter")
    assert page.locator("#terms").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#terms").is_hidden()
    assert page.get_by_role("img", name="Wiring of a measurement").is_visible()
    with urllib.request.urlopen(url + page.get_attribute("text=Guide", "href")) as guide:
        assert "Fitting guide" in guide.read().decode()


def figures(mean: float = 30, interval: float | None = 1, louder: float = 0, low: float = 0, high: float = 0):
    """Figures of an answer."""
    names = ("mean_noise_reduction_db", "interval_db", "amplification_db", "out_of_band_db")
    return dict(zip(names, (mean, interval, louder, {"low": low, "high": high}), strict=True))


def measured(*codes: str):
    """Figures of a good measurement, and codes of its findings."""
    return {"mean_noise_reduction_db": 20, "interval_db": None, "amplification_db": 0}, *codes


# Words of figures, with codes of findings, on both sides of each threshold.
JUDGED = [
    *((figures(16, None), "good"), (figures(15.9, None), "fair"), (figures(3, None), "fair")),
    (figures(2.9, None), "poor"),
    # An interval that reaches below a threshold counts as the worse word.
    *((figures(17, 1), "good"), (figures(16.9, 1), "fair"), (figures(4, 1), "fair"), (figures(3.9, 1), "poor")),
    *((figures(interval=4.9), "good"), (figures(interval=5), "fair")),
    *((figures(louder=0.09), "good"), (figures(louder=0.1), "fair")),
    *((figures(louder=0.9), "fair"), (figures(louder=1), "poor")),
    *((figures(low=0.9, high=0.9), "good"), (figures(low=1), "fair"), (figures(high=1), "fair")),
    *(
        (measured("as_predicted"), "good"),
        (measured("level_off"), "fair"),
        (measured("level_off", "howling"), "poor"),
    ),
]


def test_word_follows_thresholds(page: Any):
    found = page.evaluate(
        """async (cases) => {
        const { findingsOf, judged } = await import("/workbench/steps/judgement.js");
        const findings = (codes) => findingsOf({ diagnosis: codes.map((code) => ({ code })) });
        return cases.map(([figures, ...codes]) => judged(figures, findings(codes), "Go on."));
    }""",
        [case if isinstance(case, tuple) else [case] for case, _ in JUDGED],
    )
    assert [item["word"] for item in found] == [word for _, word in JUDGED]
    assert [item["next"] == "Go on." for item in found] == [word == "good" for _, word in JUDGED]
    assert found[-1]["why"] == "howling"


def test_guide_says_what_is_good():
    """The thresholds between good and fair above are those of its table."""
    text = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    assert dict(re.findall(r"^`(\w+)` \| (?:< )?([\d.]+)", text, re.MULTILINE)) == {
        "mean_noise_reduction_db": "16",
        "interval_db": "5",
        "amplification_db": "0.1",
        "out_of_band_db": "1",
    }


def test_word_stands_beside_noise_reduction(page: Any):
    with_example(page)
    assert page.text_content("#figures > :first-child dd").startswith("fair 20.4 ± 4.5 dB")
    assert "15.9 dB (good: at least 16). Next: try " in page.text_content("#judgement")


@pytest.fixture
def busy_page(browser: Any, url: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """A page, and the headers of the 503 that stands before the service's answers until they are cleared."""
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.clock.install()
    headers = {"Retry-After": "25"}

    def answer(route: Any) -> None:
        if headers:
            route.fulfill(status=503, headers=headers, json={"detail": "the queue is full"})
        else:
            route.continue_()

    page.route("**/refine", answer)
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    yield page, headers
    page.context.close()


def test_page_waits_while_service_is_busy(busy_page: tuple[Any, dict[str, str]]):
    page, headers = busy_page
    page.click("#example")
    wait_for(page, "#status", "The service is busy; trying again in 25 s ...")
    headers.clear()
    page.clock.fast_forward(10_000)
    page.wait_for_timeout(500)
    assert "25 s" in page.text_content("#status")
    page.clock.fast_forward(15_000)
    wait_for(page, "#figures", "Wiener filter")
    wait_for(page, "#status", "Designed and drawn")


def test_page_offers_to_try_again(busy_page: tuple[Any, dict[str, str]]):
    page, headers = busy_page
    headers["Retry-After"] = "31"  # later than the page asks for
    page.click("#example")
    wait_for(page, "#status", "The design failed: the queue is full")
    headers.clear()
    page.click("text=Try again")
    wait_for(page, "#figures", "Wiener filter")


def test_page_works_with_keyboard_only(page: Any):
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "example":
            break
    page.keyboard.press("Enter")
    wait_for(page, "#figures", "Wiener filter")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "ceiling":
            break
    page.keyboard.press("ArrowLeft")
    assert wait_for(page, "output[for=ceiling]", "29.5").startswith("29.5")
    wait_until_drawn(page)
    open_step(page, "measure")
    page.focus("[aria-label='name of measurement 1']")
    page.keyboard.press("Control+A")
    page.keyboard.type("x")
    page.keyboard.press("Tab")
    page.wait_for_selector("[aria-label='Save x']:focus")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-label='Remove right ear']:focus")


def test_phone_needs_no_sideways_scrolling(page: Any):
    page.set_viewport_size({"width": 390, "height": 844})
    with_example(page)
    page.click("#keep")
    page.fill("#kept input", "a name that is far too long for any button, line or list of a telephone")
    page.press("#kept input", "Enter")
    until(page, "kept[0].name.startsWith('a name')")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
