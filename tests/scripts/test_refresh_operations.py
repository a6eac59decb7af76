"""`docs/operations.md` lists every setting as it is."""

from scripts.refresh_operations import PAGE, settings_table, with_table
from service.settings import Settings


def test_table_of_settings_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run scripts/refresh_operations.py"
    assert settings_table().count("\n`--") == len(Settings.model_fields)
    assert "\n`--drain-s` | `0.0` | Seconds after SIGTERM" in page
