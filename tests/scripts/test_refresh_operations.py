"""`docs/operations.md` lists every setting as it is, and says what to do about every alert."""

import re
from pathlib import Path

import yaml

from scripts.refresh_operations import PAGE, settings_table, with_table
from service.settings import Settings

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"


def test_table_of_settings_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run scripts/refresh_operations.py"
    assert settings_table().count("\n`--") == len(Settings.model_fields)
    assert "\n`--drain-s` | `0.0` | Seconds after SIGTERM" in page


def test_every_alert_is_explained_and_no_other() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert re.findall(r"^`(Prime\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == alerts
