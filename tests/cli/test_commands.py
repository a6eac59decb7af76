"""Commands in the order of a fitting, their exit statuses, and JSON measurements that contradict themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner, Result
from scipy.signal import lfilter

from prime_anc.cli.__main__ import main
from prime_anc.cli.inputs import ear
from prime_anc.measure.files.errors import FileError
from tests.client.relay import answering
from tests.service import models

GAIN = 0.35
EAR_FILES = "{}/filter.json", "{}/ear.npz"


def run(*arguments: object) -> Result:
    """Run one command."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of a simulated ear, its paths as arrays, and the files of `calibrate` and `design`."""
    folder = tmp_path_factory.mktemp("bench")
    primary, secondary = (response.astype(float) for response in models.responses(7))
    np.savez(folder / "ear.npz", primary=primary, secondary=secondary, sample_rate=48_000)
    random = np.random.default_rng(0)
    for name, gain in (("off", 0.0), ("on", GAIN)):
        outer = 0.05 * random.standard_normal(5 * 48_000)
        error = lfilter(primary, 1, outer) - gain * lfilter(secondary, 1, outer)
        error += 1e-5 * random.standard_normal(len(error))
        soundfile.write(folder / f"{name}.wav", np.stack([outer, error], 1), 48_000, subtype="FLOAT")
    result = run("design", folder / "ear.npz", "-k", 1, "-o", folder / "filter.json")
    assert result.exit_code == 0, result.output
    return folder


def test_recording_of_loudspeaker_alone_gives_feedback_path(folder: Path):
    played = 0.05 * np.random.default_rng(1).standard_normal(5 * 48_000)
    with np.load(folder / "ear.npz") as ear:
        secondary = ear["secondary"]
    channels = [played, lfilter([0, 0, 0.01], 1, played), lfilter(secondary, 1, played)]
    soundfile.write(folder / "drive.wav", np.stack(channels, 1), 48_000, subtype="FLOAT")
    takes = folder / "off.wav", folder / "on.wav", "--gain", GAIN
    result = run("calibrate", *takes, "--drive", folder / "drive.wav", "-o", folder / "driven.json")
    assert result.exit_code in (0, 4), result.output
    feedback = json.loads((folder / "driven.json").read_text())["feedback"]["impulse_response"]
    np.testing.assert_allclose(feedback[:6], [0, 0, 0.01, 0, 0, 0], atol=2e-4)
    designed = run("design", folder / "driven.json", "-k", 0, "--json")
    assert json.loads(designed.stdout)["loop"]["stable"]
    result = run("calibrate", *takes, "--drive", folder / "off.wav")
    assert result.exit_code == 2
    assert "it has 2 channels; record 3 in one file, in this order: loudspeaker's signal" in result.output


def test_filter_is_same_in_each_file(folder: Path):
    fir = np.float32(json.loads((folder / "filter.json").read_text())["fir"])
    for name in ("filter.wav", "filter.csv", "filter.mat"):
        written = run("design", folder / "ear.npz", "-k", 1, "-o", folder / name)
        assert "control filter at 48000 Hz: e = d - s * w * x\n" in written.output
        evaluated = run("evaluate", folder / name, folder / "ear.npz", "--json")
        assert evaluated.exit_code == 0, evaluated.output
        expected = run("evaluate", folder / "filter.json", folder / "ear.npz", "--json")
        found, wanted = (json.loads(item.stdout)["prediction"] for item in (evaluated, expected))
        assert found["mean_noise_reduction_db"] == pytest.approx(wanted["mean_noise_reduction_db"], abs=1e-3)
    samples, _ = soundfile.read(folder / "filter.wav", dtype="float32")
    np.testing.assert_array_equal(samples, fir)


def test_export_writes_sections_and_loss(folder: Path):
    result = run(
        "export",
        folder / "filter.json",
        folder / "ear.npz",
        "--sections",
        3,
        "--format",
        "q1.23",
        "-o",
        folder / "b.h",
        "-o",
        folder / "b.json",
    )
    assert result.exit_code == 0, result.output
    assert "3 sections at 48000 Hz" in result.output
    header = (folder / "b.h").read_text()
    assert "control_filter[3][5]" in header
    scaling = json.loads((folder / "b.json").read_text())["coefficients"]["scaling"]
    assert f"#define CONTROL_FILTER_HEADROOM {scaling['headroom_bits']} " in header
    assert f"noise at the output: {scaling['wide_noise_db']:.0f} dB re full" in header
    assert f"the sum, {scaling['noise_db']:.0f} dB" in header
    text = run("export", folder / "filter.json", folder / "ear.npz", "--target", "minidsp", "-o", folder / "b.txt")
    assert text.exit_code == 0, text.output
    assert (folder / "b.txt").read_text().startswith("biquad1,")
    assert "control filter at 48000 Hz: e = d - s * w * x\n" in text.output


def test_export_takes_options_of_design(folder: Path):
    files = folder / "filter.json", folder / "ear.npz"
    found = [
        json.loads(run("export", *files, "--sections", 3, "--json", *more).stdout)["prediction"]
        for more in ((), ("--risk-weight", 10), ("--max-gain-db", -10))
    ]
    usual_db, weighted_db, _ = (min(item["noise_reduction_db"]) for item in found)
    assert weighted_db > usual_db
    assert found[2]["max_gain_db"] < -9.9 < found[0]["max_gain_db"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("design",), 2, "give measurements"),
        (("design", "{}/none.npz"), 2, "no such file"),
        (("design", "{}/off.wav", "--primary", "{}/off.wav", "--secondary", "{}/on.wav"), 2, "give measurements"),
        (("calibrate", "{}/off.wav", "{}/on.wav", "--gain", "0"), 2, "--gain: 0"),
        (("calibrate", "{}/off.wav", "{}/on.wav", "--gain", "5000"), 1, "send the factor"),
        (("export", *EAR_FILES, "--rate", "10"), 2, "sample_rate: 10 Hz"),
        (("design", "{}/ear.npz", "--method", "magic"), 2, "--method"),
        (("export", *EAR_FILES, "--target", "none"), 2, "does not exist"),
        (("export", *EAR_FILES, "--sections", "2", "-o", "{}/b.pdf"), 2, "not known"),
        (("export", *EAR_FILES, "--taps", "32", "-o", "{}/first.csv", "-o", "{}/c.txt"), 1, "target.form"),
        (("models", "--url", "http://127.0.0.1:9", "--deadline-ms", "100"), 3, "no service answers"),
        (("report", "{}/ear.npz", "-o", "{}/report.pdf"), 2, "a browser prints it as PDF"),
        (("models", "--url", "http://127.0.0.1:9", "--key", "a b"), 2, "white space"),
        (("design", "{}/ear.npz", "--deadline-ms", "0.5"), 2, "0.5 is not in the range"),
    ],
)
def test_mistake_is_named_with_status(folder: Path, arguments: tuple[str, ...], status: int, message: str):
    """No file is written, even if others could be."""
    result = run(*(argument.format(folder) for argument in arguments))
    assert result.exit_code == status, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (folder / "first.csv").exists()


def test_busy_service_is_asked_again() -> None:
    """Once for its readiness, then as long as the next attempt begins within the deadline."""
    busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
    with answering(busy) as (port, accepted):
        result = run("models", "--url", f"http://127.0.0.1:{port}", "--deadline-ms", 1500)
        assert len(accepted) == 3
    assert result.exit_code == 3, result.output


def test_doubtful_recordings_are_named(folder: Path, tmp_path: Path):
    """A gain with which the loudspeaker would have been far too loud, and a recording at another rate."""
    loud = run("calibrate", folder / "off.wav", folder / "on.wav", "--gain", 100 * GAIN)
    assert "times full scale; check the gain" in loud.output
    assert "full scale" not in run("calibrate", folder / "off.wav", folder / "on.wav", "--gain", GAIN).output
    samples, rate_hz = soundfile.read(folder / "on.wav")
    assert rate_hz == 48_000
    soundfile.write(tmp_path / "on.wav", samples, 44_100)
    mixed = run("calibrate", folder / "off.wav", tmp_path / "on.wav", "--gain", GAIN)
    assert mixed.exit_code == 2, mixed.output
    assert "different sample rates" in mixed.output
    twice = run("calibrate", folder / "off.wav", folder / "off.wav", "--gain", GAIN)
    assert "the states do not differ" in twice.output


def test_hybrid_runs_on_chip_as_predicted(folder: Path, tmp_path: Path):
    both, ear, header = tmp_path / "both.json", folder / "ear.npz", tmp_path / "both.h"
    device = ("--target", "openearable-2", "--controller-sample-rate", 48_000)
    made = run("hybrid", ear, *device, "-k", 0, "-o", both)
    assert made.exit_code == 0, made.output
    assert "controller: 2 sections at 48000 Hz in q5.27" in made.output
    chip, quiet, running = (tmp_path / name for name in ("chip.json", "quiet.wav", "running.wav"))
    files = ("-o", header, "-o", tmp_path / "both.txt", "-o", chip)
    exported = run("export", both, ear, "--sections", 2, "--format", "q5.27", *files)
    assert exported.exit_code == 0, exported.output
    assert "hybrid_step" in header.read_text()
    assert "filter at 48000 Hz, controller at 48000 Hz: e = d - s * (w * x + k * e)" in exported.output
    assert all(
        (tmp_path / f"both_{part}.txt").read_text().startswith("biquad1,") for part in ("controller", "playback")
    )
    page = tmp_path / "both.html"
    assert run("report", ear, "-k", 0, "--controller", both, "-o", page).exit_code == 0
    margin_db = json.loads(both.read_text())["loop"]["conditions"][0]["gain_margin_db"]
    margins = "Margins of all plants", f"<td>ear</td><td>{margin_db:.1f} dB", "<td>open</td>"
    parts = ("feedback share", "Nyquist plot", "2 sections at 48000 Hz", *margins)
    assert [part for part in parts if part not in page.read_text()] == []
    assert page.read_text().index("<svg") < page.read_text().index('class="nyquist"')
    simulated = run("simulate", ear, chip, "--seconds", 2, "-o", quiet, "-o", running)
    assert simulated.exit_code == 0, simulated.output
    assert "as_predicted" in run("verify", chip, ear, "--off", quiet, "--on", running).output
    loud, trim = tmp_path / "loud.json", tmp_path / "trim.json"
    trim.write_text(json.dumps({"trim": {"fir": None, "controller": json.loads(both.read_text())["controller"]}}))
    again = run("export", both, ear, "--sections", 2, "--format", "q5.27", "--controller", trim, "-o", loud)
    assert again.exit_code == 0, again.output
    # The design's taps are another filter than the sections that ran.
    assert "controller_unknown" in run("verify", both, ear, "--off", quiet, "--on", running).output
    evaluated = run("evaluate", both, ear, "--json")
    expected = json.loads(both.read_text())["prediction"]["mean_noise_reduction_db"]
    assert json.loads(evaluated.stdout)["prediction"]["mean_noise_reduction_db"] == pytest.approx(
        expected, abs=0.05
    )


def test_measurement_keeps_sign_up_to_trimmed_filter(folder: Path, tmp_path: Path):
    """A chain of sign plus adds; its gain is recorded with the other polarity."""
    ear, design = tmp_path / "ear.json", tmp_path / "filter.json"
    run("calibrate", folder / "off.wav", folder / "on.wav", "--gain", -GAIN, "--sign", "plus", "-o", ear)
    made = run("design", ear, "-k", 1, "-o", design)
    assert f"written: {design}" in made.output
    fir = -np.array(json.loads(design.read_text())["fir"])
    with np.load(folder / "ear.npz") as ear:
        primary, secondary = ear["primary"], ear["secondary"]
    outer = 0.05 * np.random.default_rng(1).standard_normal(5 * 48_000)
    off = lfilter(primary, 1, outer)
    for name, loudness in (("off", 0.0), ("on", 1.0), ("loud", 1.2)):
        error = off - loudness * lfilter(secondary, 1, np.convolve(outer, fir)[: len(outer)])
        soundfile.write(tmp_path / f"{name}.wav", np.stack([outer, error], 1), 48_000, subtype="FLOAT")
    takes = "--off", tmp_path / "off.wav", "--on"
    plain = run("verify", design, ear, *takes, tmp_path / "on.wav", "--json")
    assert abs(json.loads(plain.stdout)["trim"]["gain_db"]) < 0.3, plain.output
    trimmed = run("verify", design, ear, *takes, tmp_path / "loud.wav", "-o", tmp_path / "trim.json")
    assert trimmed.exit_code == 4
    assert "level_off" in trimmed.output
    again = run("evaluate", tmp_path / "trim.json", ear, "--json")
    assert again.exit_code == 0, again.output
    assert not json.loads((tmp_path / "trim.json").read_text())["trim"]["invert"]
    twice = tmp_path / "twice.json"
    run("verify", tmp_path / "trim.json", ear, *takes, tmp_path / "loud.wav", "-o", twice)
    once_db, both_db = (json.loads(file.read_text())["trim"]["gain_db"] for file in (tmp_path / "trim.json", twice))
    assert both_db == pytest.approx(2 * once_db, abs=0.1)
    chip = tmp_path / "chip.json"  # its prediction is of the loudspeaker for which the filter was trimmed
    assert run("export", tmp_path / "trim.json", ear, "--taps", 2048, "-o", chip).exit_code == 0
    expected = json.loads(chip.read_text())["prediction"]["mean_noise_reduction_db"]
    again = run("evaluate", chip, ear, "--json")
    assert json.loads(again.stdout)["prediction"]["mean_noise_reduction_db"] == pytest.approx(expected, abs=0.05)


def test_feedback_path_joins_measurement(folder: Path, tmp_path: Path):
    np.savez(tmp_path / "feedback.npz", feedback=np.r_[np.zeros(5), 0.3], sample_rate=48_000)
    result = run("design", folder / "ear.npz", "-k", 1, "--feedback", tmp_path / "feedback.npz", "--json")
    assert result.exit_code == 0, result.output
    loop = json.loads(result.stdout)["loop"]
    assert loop["stable"]
    assert loop["peak_db"] > -60
    filter_file, known = tmp_path / "filter.json", (folder / "ear.npz", "--feedback", tmp_path / "feedback.npz")
    commands = (("design", *known, "-k", 1, "-o", filter_file), ("evaluate", filter_file, *known))
    for command in (*commands, ("export", filter_file, *known, "--taps", 2048)):
        results = run(*command)
        assert "loop, as designed: stable; gain margin" in results.output, results.output
    both = run("design", folder / "ear.npz", folder / "ear.npz", "--feedback", tmp_path / "feedback.npz")
    assert (both.exit_code, "single measurement" in both.output) == (2, True)


def test_noise_to_expect_is_recording_or_table(folder: Path, tmp_path: Path):
    """White noise, as samples and as levels, gives the same Wiener filter's prediction; bass gives another."""
    white = 0.1 * np.random.default_rng(0).standard_normal(4 * 48_000)
    soundfile.write(tmp_path / "white.wav", white, 48_000, subtype="FLOAT")
    (tmp_path / "white.txt").write_text("20 -40\n20000 -40\n")
    (tmp_path / "bass.csv").write_text("20,0\n200,-20\n2000,-60\n")
    found = {}
    for name in ("white.wav", "white.txt", "bass.csv"):
        arguments = ("--method", "wmmse", "-k", 0, "--reference-psd", tmp_path / name, "--json")
        result = run("design", folder / "ear.npz", *arguments)
        assert result.exit_code == 0, result.output
        found[name] = json.loads(result.stdout)["prediction"]["mean_noise_reduction_db"]
    assert found["white.wav"] == pytest.approx(found["white.txt"], abs=0.3)  # four seconds of noise are not flat
    assert abs(found["bass.csv"] - found["white.txt"]) > 1


def test_status_of_verification_follows_interval(folder: Path, tmp_path: Path):
    """A loudspeaker that is 0.5 dB louder is named, but does not matter; 6 dB do. A chip's filter is not trimmed."""
    ear, chip, trim = folder / "ear.npz", tmp_path / "chip.json", tmp_path / "trim.json"
    quiet, running = tmp_path / "quiet.wav", tmp_path / "running.wav"
    assert run("export", folder / "filter.json", ear, "--sections", 3, "-o", chip).exit_code == 0
    verify = "verify", chip, ear, "--off", quiet
    for gain_db, status, place in ((0.5, 0, "within"), (6, 4, "outside")):
        run("simulate", ear, chip, "--gain-db", gain_db, "--seconds", 2, "-o", quiet, "-o", running)
        found = run(*verify, "--on", running)
        assert (found.exit_code, f"lies {place} this interval" in found.output) == (status, True), found.output
        assert "level_off" in found.output
    for on, reason in ((running, "a chip's filter is not trimmed"), (quiet, "no gain and delay correct")):
        refused = run(*verify, "--on", on, "-o", trim)
        assert (refused.exit_code, reason in refused.output, trim.exists()) == (2, True, False), refused.output
    verified, page = tmp_path / "verified.json", tmp_path / "report.html"
    verified.write_text(run(*verify, "--on", running, "--json").stdout)
    assert run("report", ear, "-k", 0, "--verification", verified, "-o", page).exit_code == 0
    parts = (
        "Predicted noise reduction per band",
        "Verified",
        "level_off",
        "Measured noise reduction",
        "Gain, dB over Hz",
    )
    places = [page.read_text().index(part) for part in parts]
    assert places == sorted(places)
    foreign = run("report", ear, "--verification", chip)
    assert (foreign.exit_code, "it is no verification" in foreign.output) == (2, True), foreign.output


def test_report_is_page(folder: Path, tmp_path: Path):
    named = "--listener", "<Ann>", "--ear", "left"
    result = run("report", folder / "ear.npz", "-k", 0, *named, "-o", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 3
    for part in ("2048 taps, q1.15", "Control filter, &lt;Ann&gt;, left ear", "ear.npz: ", "<td>50 Hz</td>", "20"):
        assert part in text
    assert "<Ann>" not in text


PATH = {"impulse_response": [1.0, 0.5]}


def written(file: Path, **fields: Any) -> Path:
    """Write a measurement."""
    file.write_text(json.dumps({"primary": PATH, "secondary": PATH} | fields))
    return file


@pytest.mark.parametrize("name", ["sample_rate", "fs", "SamplingRate"])
def test_json_at_another_rate_is_rejected(tmp_path: Path, name: str) -> None:
    assert ear(written(tmp_path / "ear.json", **{name: 48_000}))[1] == ()
    with pytest.raises(FileError, match="states 44100 Hz"):
        ear(written(tmp_path / "ear.json", **{name: 44_100}))


def test_coherence_of_file_travels_as_tensor(tmp_path: Path) -> None:
    """As JSON, that of four measurements would exceed the header."""
    fields, _ = ear(written(tmp_path / "ear.json", coherence=[0.9] * 16_385))
    assert isinstance(fields["coherence"], np.ndarray)


def test_failed_calibration_is_reported(tmp_path: Path) -> None:
    verdict = {"passed": False, "reasons": [{"code": "clipping"}]}
    (note,) = ear(written(tmp_path / "ear.json", verdict=verdict))[1]
    assert "did not pass (clipping)" in note
