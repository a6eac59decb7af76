"""Regenerate the table of settings in docs/operations.md.

.venv/bin/python scripts/refresh_operations.py
"""

from pathlib import Path

from service.settings import Settings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operations.md"
BEGIN, END = "<!-- settings: scripts/refresh_operations.py writes this table -->\n", "<!-- end of settings -->"


def main() -> None:
    """Replace the table."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(page: str) -> str:
    """Return the page with the current table of settings."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + settings_table() + END + rest.split(END, 1)[1]


def settings_table() -> str:
    """Return the table of options, defaults and meanings."""
    rows = []
    for name, field in Settings.model_fields.items():
        option, meaning = name.replace("_", "-"), " ".join((field.description or "").split())
        rows.append(f"`--{option}` | {_shown(field.default)} | {meaning}")
    return "\n".join(["option | default | meaning", "---|---|---", *rows, ""])


def _shown(default: object) -> str:
    return "" if default in (None, "", ()) else f"`{default}`"


if __name__ == "__main__":
    main()
