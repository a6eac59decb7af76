"""The page in a real Chromium: example, sliders, sound, comparison, controllers."""

import json
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import welch

from tests.page.driving import (
    PATHS,
    open_step,
    rendered,
    slide,
    state,
    until,
    wait_for,
    wait_until_drawn,
    with_example,
)


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


def test_designs_are_kept_and_exported(page: Any, tmp_path: Path):
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


def test_device_sets_number_of_sections(page: Any):
    """But for one that was typed, as far as it holds that."""
    with_example(page)
    open_step(page, "load")
    for device, n, typed in (("openearable-2", 5, None), ("minidsp", 8, 7), ("pinebuds-pro", 6, 3), ("", 3, None)):
        page.select_option("#target", device)
        assert page.input_value("#sections") == page.text_content("output[for=sections]") == str(n)
        if typed:
            slide(page, "sections", typed)


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
    assert (other.input_value("#ceiling"), state(other, "kept.length")) == ("10", 1)
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
