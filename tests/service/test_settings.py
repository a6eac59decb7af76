"""Settings from the command line and the environment, and invalid ones."""

import os

import pytest

from service.__main__ import main
from service.settings import Settings, misspelt, physical_cores


def test_threads_default_to_physical_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)
    assert Settings(threads=None).n_threads() == physical_cores()
    monkeypatch.setattr("service.settings.processors", lambda: {0, 1, 4, 5})
    assert Settings(threads=3).n_threads() == 3
    assert Settings(threads=64).n_threads() == 4


@pytest.mark.parametrize(
    ("arguments", "variable", "said"),
    [
        (["--port", "x"], None, "port: 'x' is refused"),
        ([], "PRIME_ALLOWED_HOSTS", "write several values as JSON"),
        ([], "PRIME_DEADLINE", "PRIME_DEADLINE is no setting; unset it, or write PRIME_DEADLINE_MS\n"),
        ([], "PRIME_FOO", "PRIME_FOO is no setting; unset it\n"),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_wrong_setting_is_refused_with_line(
    arguments: list[str],
    variable: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("service.app.create_app", lambda _: pytest.fail("the service would start"))
    if variable:
        monkeypatch.setenv(variable, "secret")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "secret" not in error


def test_variables_of_others_are_ignored() -> None:
    # Kubernetes sets the first for a service named prime-anc.
    assert misspelt(["PRIME_ANC_PORT_80_TCP", "PRIME_URL", "PRIME_CASES", "PRIME_PORT", "DRI_PRIME"]) == {}


@pytest.mark.usefixtures("in_this_process")
def test_unusable_keys_are_refused_with_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--api-keys-file", "/nowhere/keys"]) == 2
    assert "/nowhere/keys cannot be read" in capsys.readouterr().err
