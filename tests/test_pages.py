"""The pages lead to files and headings that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_headings() -> None:
    links = [
        (page, *link)
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 30
    for page, file, anchor in links:
        target = page.parent / file if file else page
        assert target.exists(), (page, file)
        assert not anchor or anchor in anchors(target), (page, file, anchor)
