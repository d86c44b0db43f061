"""A TCP proxy that holds back one request on its way to a broker, as a network may do.

The client gives the connection up, or finds it ended, and goes on by another one; the proxy keeps
the old one to the broker, and what it has held arrives there when the test says so.
"""

from __future__ import annotations

import socket
import struct
import threading

from ottla.protocol.header import decode_request, decode_request_header, decode_response
from ottla.protocol.message import Request, Response

SIZE = struct.Struct(">i")
LIMIT_SECONDS = 60


class FrameProxy:
    """Forwards whole requests; the next one of the kind that `hold` names stays here."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port = 0
        self._kind: type[Request] | None = None
        self._hangs_up = False
        self._held: tuple[socket.socket, bytes] | None = None
        self._is_held = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def start(self, broker_port: int) -> None:
        """Accept connections, and open one to the broker for each."""
        self.broker_port = broker_port
        self._run(self._accept)

    def hold(self, kind: type[Request], *, hangs_up: bool = False) -> None:
        """Keep the next request of this kind, and what comes behind it.

        Where it does not hang up, the client waits for an answer for as long as it ever does.
        """
        self._is_held.clear()
        self._hangs_up = hangs_up
        self._kind = kind

    def wait_until_held(self) -> None:
        assert self._is_held.wait(LIMIT_SECONDS), "no such request came"

    def release(self) -> Response:
        """Let the broker have the request now; returns its answer, which nobody waits for."""
        assert self._held is not None, "nothing is held"
        upstream, frame = self._held
        self._held = None
        upstream.settimeout(LIMIT_SECONDS)
        upstream.sendall(SIZE.pack(len(frame)) + frame)
        header, position = decode_request_header(memoryview(frame))
        request = decode_request(header, memoryview(frame), position)
        answer = read_frame(upstream)
        assert answer is not None, "the broker hung up"
        return decode_response(type(request), header.api_version, memoryview(answer))[1]

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                each.close()
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)

    def _run(self, work, *arguments) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self.broker_port))
            self._sockets += [client, upstream]
            # Once a request is held, its answer is not for the client any more.
            is_cut = threading.Event()
            answers = self._run(self._forward_answers, upstream, client, is_cut)
            self._run(self._forward_requests, client, upstream, is_cut, answers)

    def _forward_requests(
        self,
        client: socket.socket,
        upstream: socket.socket,
        is_cut: threading.Event,
        answers: threading.Thread,
    ) -> None:
        while (frame := read_frame(client)) is not None:
            header, _ = decode_request_header(memoryview(frame))
            if self._kind is not None and header.api_key == self._kind.api_key:
                self._kind = None
                is_cut.set()
                answers.join(LIMIT_SECONDS)  # before another reads from the connection
                self._held = upstream, frame
                self._is_held.set()
                if self._hangs_up:
                    close(client)
                return
            upstream.sendall(SIZE.pack(len(frame)) + frame)
        close(upstream)

    def _forward_answers(
        self, upstream: socket.socket, client: socket.socket, is_cut: threading.Event
    ) -> None:
        upstream.settimeout(0.05)
        while not is_cut.is_set():
            try:
                data = upstream.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                close(client)
                return
            try:
                client.sendall(data)
            except OSError:
                return


def close(connection: socket.socket) -> None:
    """End a connection that a thread may be reading from."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        connection.close()


def read_frame(connection: socket.socket) -> bytes | None:
    """A request or an answer without its size; None when the other side has closed."""
    parts = b""
    wanted = SIZE.size
    while len(parts) < wanted:
        try:
            data = connection.recv(wanted - len(parts))
        except OSError:
            return None
        if not data:
            return None
        parts += data
        if len(parts) == SIZE.size and wanted == SIZE.size:
            wanted += SIZE.unpack(parts)[0]
    return parts[SIZE.size :]
