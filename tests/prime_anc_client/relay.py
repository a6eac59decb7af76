"""A wire between a client and the service, on which connections can be counted and bytes go wrong."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Change = Callable[[bytes], bytes]


@contextmanager
def relayed(
    port: int, request: Change = bytes, answer: Change = bytes
) -> Iterator[tuple[int, list[socket.socket]]]:
    """A port that leads to another, and the connections that it has taken.

    request, answer: what becomes of the bytes on their way there and back; where nothing, the connection ends.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []
    sockets = [listening]

    def pass_on(source: socket.socket, sink: socket.socket, change: Change) -> None:
        with suppress(OSError):
            while chunk := change(source.recv(65_536)):
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                taken, _ = listening.accept()
                onward = socket.create_connection(("127.0.0.1", port))
                accepted.append(taken)
                sockets.extend((taken, onward))
                for source, sink, change in ((taken, onward, request), (onward, taken, answer)):
                    threads.append(threading.Thread(target=pass_on, args=(source, sink, change)))
                    threads[-1].start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield listening.getsockname()[1], accepted
    finally:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in threads:
            thread.join()
