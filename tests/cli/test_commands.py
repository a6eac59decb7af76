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
from prime_anc.inputs.ears import ear
from prime_anc.measure.files.errors import FileError
from tests.client.relay import answering
from tests.service import models

GAIN, N = 0.35, 3 * 48_000
EAR_FILES = "{}/filter.json", "{}/ear.npz"


def run(*arguments: object) -> Result:
    """Run one command."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def prediction(result: Result) -> dict[str, Any]:
    """The prediction that a command printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["prediction"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of a simulated ear, its paths as arrays, and the files of `calibrate` and `design`."""
    folder = tmp_path_factory.mktemp("bench")
    primary, secondary = models.responses(7)
    np.savez(folder / "ear.npz", primary=primary, secondary=secondary, sample_rate=48_000)
    random = np.random.default_rng(0)
    for name, gain in (("off", 0.0), ("on", GAIN)):
        outer = 0.05 * random.standard_normal(N)
        error = lfilter(primary, 1, outer) - gain * lfilter(secondary, 1, outer)
        error += 1e-5 * random.standard_normal(len(error))
        soundfile.write(folder / f"{name}.wav", np.stack([outer, error], 1), 48_000, subtype="FLOAT")
    result = run("design", folder / "ear.npz", "-k", 1, "-o", folder / "filter.json")
    assert result.exit_code == 0, result.output
    return folder


def test_recording_of_loudspeaker_alone_gives_feedback_path(folder: Path, tmp_path: Path):
    played, driven = 0.05 * np.random.default_rng(1).standard_normal(N), tmp_path / "driven.json"
    channels = [played, lfilter([0, 0, 0.01], 1, played), lfilter(models.responses(7)[1], 1, played)]
    soundfile.write(tmp_path / "drive.wav", np.stack(channels, 1), 48_000, subtype="FLOAT")
    takes = folder / "off.wav", folder / "on.wav", "--gain", GAIN
    result = run("calibrate", *takes, "--drive", tmp_path / "drive.wav", "-o", driven)
    assert result.exit_code in (0, 4), result.output
    feedback = json.loads(driven.read_text())["feedback"]["impulse_response"]
    np.testing.assert_allclose(feedback[:6], [0, 0, 0.01, 0, 0, 0], atol=2e-4)
    assert json.loads(run("design", driven, "-k", 0, "--json").stdout)["loop"]["stable"]
    result = run("calibrate", *takes, "--drive", folder / "off.wav")
    assert (result.exit_code, "it has 2 channels; record 3 in one file" in result.output) == (2, True)


def test_filter_is_same_in_each_file(folder: Path):
    expected = prediction(run("evaluate", folder / "filter.json", folder / "ear.npz", "--json"))
    for name in ("filter.wav", "filter.csv", "filter.mat"):
        written = run("design", folder / "ear.npz", "-k", 1, "-o", folder / name)
        assert "control filter at 48000 Hz: e = d - s * w * x\n" in written.output
        found = prediction(run("evaluate", folder / name, folder / "ear.npz", "--json"))
        assert found["mean_noise_reduction_db"] == pytest.approx(expected["mean_noise_reduction_db"], abs=1e-3)
    both = run("evaluate", folder / "filter.json", folder / "ear.npz", folder / "ear.npz")
    assert both.stdout.count("ear:\n") == 2, both.output


def test_export_keeps_ceiling_of_filter(folder: Path, tmp_path: Path):
    """A filter's file holds the curve that it was designed under."""
    curve, filter_file, chip = tmp_path / "curve.txt", tmp_path / "filter.json", tmp_path / "chip.json"
    curve.write_text("99 0\n101 30\n")
    assert run("design", folder / "ear.npz", "--max-gain-db", curve, "-o", filter_file).exit_code == 0
    assert run("export", filter_file, folder / "ear.npz", "--taps", 1024, "-o", chip).exit_code == 0
    response = np.fft.rfft(json.loads(chip.read_text())["coefficients"]["taps"], 48_000)
    assert np.abs(response[20:99]).max() < 10 ** (0.1 / 20)


def test_export_writes_sections_and_loss(folder: Path, tmp_path: Path):
    files, text = (folder / "filter.json", folder / "ear.npz"), tmp_path / "b.txt"
    header, document = tmp_path / "b.h", tmp_path / "b.json"
    words = ("--sections", 3, "--format", "q1.23", "--max-gain-db", -10)
    result = run("export", *files, *words, "-o", header, "-o", document)
    assert result.exit_code == 0, result.output
    assert "coefficients.form: sos" in result.output
    assert "loss_db: " in result.output
    assert "control_filter[3][5]" in header.read_text()
    assert json.loads(document.read_text())["prediction"]["max_gain_db"] < -9.9
    result = run("export", *files, "--target", "minidsp", "-o", text)
    assert result.exit_code == 0, result.output
    assert text.read_text().startswith("biquad1,")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("design",), 2, "give measurements"),
        (("design", "{}/none.npz"), 2, "no such file"),
        (("calibrate", "{}/off.wav", "{}/on.wav", "--gain", "5000"), 1, "send the factor"),
        (("export", *EAR_FILES, "--target", "nonesuch"), 2, "pinebuds-pro"),
        (("export", *EAR_FILES, "--rate", "10"), 2, "8000.0<=x<=768000.0"),
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
    soundfile.write(tmp_path / "on.wav", soundfile.read(folder / "on.wav")[0], 44_100)
    mixed = run("calibrate", folder / "off.wav", tmp_path / "on.wav", "--gain", GAIN)
    assert (mixed.exit_code, "different sample rates" in mixed.output) == (2, True), mixed.output


def test_hybrid_runs_on_chip_as_predicted(folder: Path, tmp_path: Path):
    ear, names = folder / "ear.npz", ("both.json", "chip.json", "quiet.wav", "running.wav", "both.h", "both.html")
    both, chip, quiet, running, header, page = (tmp_path / name for name in names)
    device = ("--target", "openearable-2", "--controller-sample-rate", 48_000)
    made = run("hybrid", ear, *device, "-k", 0, "-o", both)
    assert made.exit_code == 0, made.output
    assert "controller.number_format: q5.27" in made.output
    files = ("-o", header, "-o", tmp_path / "both.txt", "-o", chip)
    exported = run("export", both, ear, "--sections", 2, "--format", "q5.27", *files)
    assert exported.exit_code == 0, exported.output
    assert "hybrid_step" in header.read_text()
    assert "filter at 48000 Hz, controller at 48000 Hz: e = d - s * (w * x + k * e)" in exported.output
    for part in ("controller", "playback"):
        assert (tmp_path / f"both_{part}.txt").read_text().startswith("biquad1,")
    assert run("report", ear, "-k", 0, "--controller", both, "-o", page).exit_code == 0
    margin_db = json.loads(both.read_text())["loop"]["conditions"][0]["gain_margin_db"]
    margins = "Margins of all plants", f"<td>ear</td><td>True</td><td>{margin_db:.4g}", "<td>open</td>"
    assert [
        part for part in ("feedback_noise_reduction_db", "Nyquist plot", *margins) if part not in page.read_text()
    ] == []
    simulated = run("simulate", ear, chip, "--seconds", 2, "-o", quiet, "-o", running)
    assert simulated.exit_code == 0, simulated.output
    assert "as_predicted" in run("verify", chip, ear, "--off", quiet, "--on", running).output
    # The design's taps are another filter than the sections that ran.
    assert "controller_unknown" in run("verify", both, ear, "--off", quiet, "--on", running).output


def test_measurement_keeps_sign_up_to_trimmed_filter(folder: Path, tmp_path: Path):
    """A chain of sign plus adds; its gain is recorded with the other polarity."""
    ear, design, trim, twice, chip = (
        tmp_path / f"{name}.json" for name in ("ear", "filter", "trim", "twice", "chip")
    )
    run("calibrate", folder / "off.wav", folder / "on.wav", "--gain", -GAIN, "--sign", "plus", "-o", ear)
    made = run("design", ear, "-k", 1, "-o", design)
    assert f"written: {design}" in made.output
    fir = -np.array(json.loads(design.read_text())["fir"])
    primary, secondary = models.responses(7)
    outer = 0.05 * np.random.default_rng(1).standard_normal(N)
    off = lfilter(primary, 1, outer)
    for name, loudness in (("off", 0.0), ("loud", 1.2)):
        error = off - loudness * lfilter(secondary, 1, np.convolve(outer, fir)[: len(outer)])
        soundfile.write(tmp_path / f"{name}.wav", np.stack([outer, error], 1), 48_000, subtype="FLOAT")
    takes = "--off", tmp_path / "off.wav", "--on", tmp_path / "loud.wav"
    trimmed = run("verify", design, ear, *takes, "-o", trim)
    assert (trimmed.exit_code, "level_off" in trimmed.output) == (4, True), trimmed.output
    run("verify", trim, ear, *takes, "-o", twice)
    found, again = (json.loads(file.read_text())["trim"] for file in (trim, twice))
    assert not found["invert"]
    assert found["gain_db"] == pytest.approx(-20 * np.log10(1.2), abs=0.3)
    assert again["gain_db"] == pytest.approx(2 * found["gain_db"], abs=0.1)
    # Its prediction is of the loudspeaker for which the filter was trimmed.
    assert run("export", trim, ear, "--taps", 2048, "-o", chip).exit_code == 0
    expected = json.loads(chip.read_text())["prediction"]["mean_noise_reduction_db"]
    found = prediction(run("evaluate", chip, ear, "--json"))
    assert found["mean_noise_reduction_db"] == pytest.approx(expected, abs=0.05)


def test_feedback_path_joins_measurement(folder: Path, tmp_path: Path):
    np.savez(tmp_path / "feedback.npz", feedback=np.r_[np.zeros(5), 0.3], sample_rate=48_000)
    filter_file, known = tmp_path / "filter.json", (folder / "ear.npz", "--feedback", tmp_path / "feedback.npz")
    commands = (("design", *known, "-k", 1, "-o", filter_file), ("evaluate", filter_file, *known))
    for command in (*commands, ("export", filter_file, *known, "--taps", 2048)):
        results = run(*command)
        assert "loop.stable: True" in results.output, results.output
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
        found[name] = prediction(run("design", folder / "ear.npz", *arguments))["mean_noise_reduction_db"]
    assert found["white.wav"] == pytest.approx(found["white.txt"], abs=0.3)  # four seconds of noise are not flat
    assert abs(found["bass.csv"] - found["white.txt"]) > 1


def test_status_of_verification_follows_interval(folder: Path, tmp_path: Path):
    """A loudspeaker that is 0.5 dB louder is named, but does not matter; 6 dB do. A chip's filter is not trimmed."""
    ear, chip, trim = folder / "ear.npz", tmp_path / "chip.json", tmp_path / "trim.json"
    quiet, running = tmp_path / "quiet.wav", tmp_path / "running.wav"
    assert run("export", folder / "filter.json", ear, "--sections", 3, "-o", chip).exit_code == 0
    verify = "verify", chip, ear, "--off", quiet
    reason = "a chip's filter is not trimmed"
    for gain_db, status, place in ((0.5, 0, "within"), (6, 4, "outside")):
        run("simulate", ear, chip, "--gain-db", gain_db, "--seconds", 2, "-o", quiet, "-o", running)
        found = run(*verify, "--on", running)
        assert (found.exit_code, f"lies {place} the predicted interval" in found.output) == (status, True), (
            found.output
        )
        assert "level_off" in found.output
        refused = run(*verify, "--on", running, "-o", trim)
        assert (refused.exit_code, reason in refused.output, trim.exists()) == (status or 2, True, False)
    assert "no gain and delay correct" in run(*verify, "--on", quiet, "-o", trim).output
    verified, page = tmp_path / "verified.json", tmp_path / "report.html"
    verified.write_text(run(*verify, "--on", running, "--json").stdout)
    assert run("report", ear, "-k", 0, "--verification", verified, "-o", page).exit_code == 0
    assert "Measured noise reduction" in page.read_text()
    foreign = run("report", ear, "--verification", chip)
    assert (foreign.exit_code, "it is no verification" in foreign.output) == (2, True), foreign.output


def test_report_is_page(folder: Path, tmp_path: Path):
    named = "--listener", "<Ann>", "--ear", "left"
    result = run("report", folder / "ear.npz", "-k", 0, *named, "-o", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 3
    for part in ("2048 taps, q1.15", "Control filter, &lt;Ann&gt;, left ear", "ear.npz: ", "<td>50</td>", "20"):
        assert part in text
    assert "<Ann>" not in text


PATH = {"impulse_response": [1.0, 0.5]}


def written(file: Path, **fields: Any) -> Path:
    """Write a measurement."""
    file.write_text(json.dumps({"primary": PATH, "secondary": PATH} | fields))
    return file


def test_json_at_another_rate_is_rejected(tmp_path: Path) -> None:
    for name in ("sample_rate", "fs", "SamplingRate"):
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
