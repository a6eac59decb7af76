"""Write docs/openapi.json anew: the description of the service's default settings, as `/openapi.json` serves it.

.venv/bin/python scripts/refresh_openapi.py
"""

import json
import re
from pathlib import Path

from service.openapi.document import document
from service.settings import Settings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "openapi.json"


def main() -> None:
    """Replace the file."""
    PAGE.write_text(text(), encoding="utf-8")


def text() -> str:
    """The document by settings that nobody has set: a line for each value, and one for a list of numbers."""
    found = json.dumps(document(Settings.model_construct()), indent=1, sort_keys=True)
    return re.sub(r"\[[-\d.e,\s]+\]", lambda numbers: " ".join(numbers[0].split()), found) + "\n"


if __name__ == "__main__":
    main()
