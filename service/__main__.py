"""`python -m service`: read the settings and serve until stopped."""

import logging
import os
import signal
import sys
from contextlib import suppress

from pydantic import ValidationError
from pydantic_settings import SettingsError

from service.settings import Settings, misspelt


def main(arguments: list[str]) -> int:
    """Return the exit status: 2 for unusable settings, 3 for an address that cannot be listened on.

    After a signal the process ends by that signal, as with uvicorn.
    """
    # SIGHUP would end the process; until the server handles it, there are no models to reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings = Settings(_cli_parse_args=arguments)  # type: ignore[call-arg]
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = "-".join(str(part) for part in item["loc"]).replace("_", "-")
            print(f"python -m service: error: {name}: {item['input']!r} is refused: {item['msg']}", file=sys.stderr)
        return 2
    except SettingsError as error:
        print(f"python -m service: error: {error}; write several values as JSON", file=sys.stderr)
        return 2
    if unknown := misspelt(os.environ):
        for name, nearest in unknown.items():
            remedy = f"unset it, or write {nearest}" if nearest else "unset it"
            print(f"python -m service: error: environment: {name} is no setting; {remedy}", file=sys.stderr)
        return 2
    # Worker threads have a core each: NumPy's threads would only compete with them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imported late, so that --help and invalid options are immediate.
    from service.app import create_app
    from service.heap import share_one_heap
    from service.log import JsonFormatter, TracebackLimit
    from service.server import server

    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else text)
    handler.addFilter(TracebackLimit())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    share_one_heap()
    try:
        app = create_app(settings)
    except ValueError as error:
        print(f"python -m service: error: {error}", file=sys.stderr)
        return 2
    with suppress(KeyboardInterrupt):  # raised again by the server after its shutdown
        server(app, settings).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
