"""A relay to the service that counts connections, and a server that is not the service."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def relayed(port: int, at: int = 0) -> Iterator[tuple[int, list[socket.socket]]]:
    """Relay connections to a port; yield the relay's port, a free one or `at`, and its accepted connections."""

    def pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65_536):
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def relay(taken: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as onward:
            back = threading.Thread(target=pass_on, args=(onward, taken))
            back.start()
            pass_on(taken, onward)
            back.join()

    with accepting(relay, at) as found:
        yield found


@contextmanager
def accepting(handle: Callable[[socket.socket], None], at: int = 0) -> Iterator[tuple[int, list[socket.socket]]]:
    """Handle every connection in a thread; yield the port and the accepted connections."""
    accepted: list[socket.socket] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            accepted.append(self.request)
            handle(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", at), Handler) as server:  # waits for its threads at the end
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield server.server_address[1], accepted
        finally:
            server.shutdown()
            for item in accepted:
                with suppress(OSError):
                    item.shutdown(socket.SHUT_RDWR)


@contextmanager
def answering(answer: bytes, every_s: float = 0.0) -> Iterator[tuple[int, list[socket.socket]]]:
    """Answer the first request of every connection; yield the port and the accepted connections.

    Parameters
    ----------
    answer
        Bytes of the answer.
    every_s
        Time between bytes; 0: all at once.
    """
    is_over = threading.Event()

    def answer_one(taken: socket.socket) -> None:
        with suppress(OSError), taken:
            received = b""
            while b"\r\n\r\n" not in received:
                received += taken.recv(65_536)
            for byte in [answer] if not every_s else (bytes([item]) for item in answer):
                taken.sendall(byte)
                if is_over.wait(every_s):
                    return
            taken.shutdown(socket.SHUT_WR)
            while taken.recv(65_536):
                pass

    with accepting(answer_one) as found:
        try:
            yield found
        finally:
            is_over.set()
