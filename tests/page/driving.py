"""What a user does on the page, and reads there."""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import numpy as np

PATIENCE_MS = 60_000
PATHS = ("primary", "secondary")


def wait_for(page: Any, selector: str, text: str) -> str:
    """Wait until an element's text contains a text, and return it."""
    page.locator(selector).filter(has_text=text).wait_for(state="attached", timeout=PATIENCE_MS)
    found: str = page.text_content(selector)
    return found


def with_example(page: Any) -> None:
    """Load the example listener, and wait for its design and the Wiener filter."""
    page.click("#example")
    wait_for(page, "#figures", "Wiener filter")


def open_step(page: Any, name: str) -> None:
    """Unfold a step of the bench."""
    page.click(f"#step-{name} > summary")


def state(page: Any, expression: str) -> Any:
    """Evaluate an expression in the page's state."""
    return page.evaluate(
        "(({ ears, takes, kept, noise, controller, design, realised, verification }) => "
        f"{expression})(window.workbench.state)"
    )


def until(page: Any, expression: str) -> None:
    """Wait until an expression in the page's state is true; the page's policy forbids that the browser waits."""
    for _ in range(PATIENCE_MS // 50):
        if state(page, expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(expression)


def slide(page: Any, name: str, value: float) -> None:
    """Set a slider as a user does: the value, then the events."""
    page.locator(f"#{name}").fill(str(value))


def wait_until_drawn(page: Any) -> None:
    """Wait until the last request is answered."""
    page.evaluate("window.workbench.redesign.done")
    wait_for(page, "#status", "Designed and drawn")
    page.wait_for_load_state("networkidle")


def drop(page: Any, files: list[Path]) -> None:
    """Drop files onto the page's heading, which is no particular place for them."""
    sent = [{"name": file.name, "base64": b64encode(file.read_bytes()).decode()} for file in files]
    page.evaluate(
        """(sent) => {
        const dataTransfer = new DataTransfer();
        for (const { name, base64 } of sent) {
            const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
            dataTransfer.items.add(new File([bytes], name));
        }
        const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
        document.querySelector("h1").dispatchEvent(event);
        if (!event.defaultPrevented) throw new Error("the browser would leave the page");
    }""",
        sent,
    )


def rendered(page: Any, noise: str, name: str, seconds: int) -> np.ndarray:
    """The sound as samples; as a list of numbers they would take seconds."""
    script = f"""window.workbench.render('{noise}', '{name}', {seconds}).then((samples) => {{
        const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
        let text = "";
        for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
        return btoa(text);
    }})"""
    return np.frombuffer(b64decode(page.evaluate(script)), "<f4").astype(float)
