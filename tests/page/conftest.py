"""Services and browsers for the tests of the page: they need the package playwright and a Chromium on PATH."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.service_process import started_service
from tests.page.driving import PATIENCE_MS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--autoplay-policy=no-user-gesture-required"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service with the bundled model."""
    with started_service(None, "--deadline-ms", "60000") as service:
        yield f"http://127.0.0.1:{service.port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a file."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH (`make programs` fetches it)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """A fresh page that must log no error and contact no other host; a busy service is asked again."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    hosts: set[str] = set()
    page.on("console", lambda item: complaints.append(item.text) if item.type in ("error", "warning") else None)
    page.on("pageerror", lambda item: complaints.append(str(item)))
    page.on("request", lambda item: hosts.add(item.url.split("/")[2]) if "//" in item.url else None)
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    yield page
    assert [text for text in complaints if "503 (Service Unavailable)" not in text] == []
    assert hosts == {url.split("/")[2]}
    context.close()


@pytest.fixture
def busy_page(browser: Any, url: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """A page, and the headers of the 503 that stands before the service's answers until they are cleared."""
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.clock.install()
    headers = {"Retry-After": "25"}

    def answer(route: Any) -> None:
        if headers:
            route.fulfill(status=503, headers=headers, json={"detail": "the queue is full"})
        else:
            route.continue_()

    page.route("**/refine", answer)
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    yield page, headers
    page.context.close()
