"""The page in a real Chromium: verification, words for results, a busy service, keys alone, phones."""

import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from scipy.signal import sosfilt

from tests.page.driving import open_step, state, until, wait_for, wait_until_drawn, with_example


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


def test_word_stands_beside_noise_reduction(page: Any):
    with_example(page)
    assert page.text_content("#figures > :first-child dd").startswith("fair 20.4 ± 4.5 dB")
    assert "15.9 dB (good: at least 16). Next: try " in page.text_content("#judgement")


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
