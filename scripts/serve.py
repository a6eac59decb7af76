"""Start the service in the foreground, design the example listener's filter with it, and stay until Ctrl-C.

`make serve` runs this. `python -m service` runs the service alone.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READY_WITHIN_S = 120.0  # a start takes seconds; a cold disk and a GPU's kernels take longer
STOPPED_WITHIN_S = 20.0

NEXT = """
Next, in another terminal:
  curl -s -D - -o filter.f32 '{url}/refine?k=1' -d @examples/listener.json \\
    -H 'Content-Type: application/json' -H 'Accept: application/octet-stream'
Ctrl-C here stops the service."""


def main() -> int:
    """Run the service until it ends or is stopped; return the exit status."""
    options = parse_options()
    refuse_a_taken_port(options.host, options.port)
    command = [sys.executable, "-m", "service", "--host", options.host, "--port", str(options.port)]
    command += ["--device", options.device, *(["--store", options.store] if options.store else [])]
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    # A separate session: Ctrl-C reaches only this program, which then stops the service once.
    service = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        url = address(options.host, options.port)
        if wait_until_ready(service, f"{url}/health/ready"):
            print(f"\nThe service answers at {url}: a page at {url}/, the reference at {url}/docs.", flush=True)
            example = [sys.executable, str(ROOT / "examples" / "first_design.py"), "--url", url]
            if subprocess.run(example, start_new_session=True, check=False).returncode == 0:
                print(NEXT.format(url=url), flush=True)
        else:
            service.terminate()
        status = service.wait()
    except KeyboardInterrupt:
        end(service)
        print("\nStopped.", flush=True)
        return 0
    finally:
        end(service)
    print(f"The service ended with status {status}; the lines above say why.", file=sys.stderr)
    return status or 1


def parse_options() -> argparse.Namespace:
    """Parse the command line; options have the names of those of `python -m service`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--store", help="folder or URL of published models; default: PRIME_STORE, or the package's")
    return parser.parse_args()


def refuse_a_taken_port(host: str, port: int) -> None:
    """Exit with a message if the port is in use; otherwise another program's service would answer."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        sys.exit(
            f"Cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}.\n"
            f"Choose another port, for example: make serve PORT={port + 1 if port < 65535 else 8000}"
        )


def address(host: str, port: int) -> str:
    """Return the URL at which this machine reaches the service; loopback for a service on all addresses."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def wait_until_ready(service: "subprocess.Popen[bytes]", ready_url: str) -> bool:
    """Wait for 200 from `/health/ready`; False if the service has ended or takes too long."""
    give_up = time.monotonic() + READY_WITHIN_S
    while service.poll() is None:
        try:
            with urllib.request.urlopen(ready_url, timeout=2):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if isinstance(error, urllib.error.HTTPError) and b"model-unavailable" in error.read():
                print("The default model cannot be used; the lines above say why.", file=sys.stderr)
                return False
            if time.monotonic() > give_up:
                print(f"Not ready after {READY_WITHIN_S:.0f} s; the lines above say why.", file=sys.stderr)
                return False
            time.sleep(0.1)
    return False


def end(service: "subprocess.Popen[bytes]") -> None:
    """Stop the service if it is still running."""
    if service.poll() is None:
        service.terminate()
        try:
            service.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            service.kill()


if __name__ == "__main__":
    sys.exit(main())
