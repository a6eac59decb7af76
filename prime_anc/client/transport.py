"""HTTP transport with a timeout for an attempt as a whole, however slowly its bytes arrive."""

from __future__ import annotations

import time
from collections.abc import Iterable
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

_PIECE_BYTES = 65_536


class Transport(httpx.HTTPTransport):
    """Transport for one request at a time, whose timeout limits all reads and writes together.

    httpx limits every read and write separately.
    """

    def __init__(self, uds: str | None) -> None:
        """Use a Unix socket instead of the address in the URL, if given."""
        context = httpx.create_ssl_context()
        super().__init__(verify=context)
        self._backend = _Backend()
        self._pool = httpcore.ConnectionPool(
            ssl_context=context, uds=uds, keepalive_expiry=5.0, network_backend=self._backend
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; reading the answer's body is part of the attempt."""
        self._backend.deadline = time.monotonic() + request.extensions["timeout"]["read"]
        return super().handle_request(request)


class _Backend(httpcore.NetworkBackend):
    """Sockets that share one deadline."""

    def __init__(self) -> None:
        self._sockets = httpcore.SyncBackend()
        self.deadline = 0.0

    def left_s(self, late: type[httpcore.TimeoutException]) -> float:
        """Return the seconds until the deadline; raise `late` after it."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise late("timed out")
        return left

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *more: Any, **named: Any) -> _Stream:
        left = self.left_s(httpcore.ConnectTimeout)
        return _Stream(self._sockets.connect_tcp(host, port, left, *more, **named), self)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> _Stream:
        left = self.left_s(httpcore.ConnectTimeout)
        return _Stream(self._sockets.connect_unix_socket(path, left, socket_options), self)


class _Stream(httpcore.NetworkStream):
    """A socket that reads and writes until the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, backend: _Backend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._backend.left_s(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            piece = buffer[start : start + _PIECE_BYTES]
            self._stream.write(piece, self._backend.left_s(httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        left = self._backend.left_s(httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()
