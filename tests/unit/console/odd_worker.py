"""A server at the address of a Connect worker, or of metrics, that answers bytes of a test."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class OddWorker:
    """Each of its answers, to any request, are the bytes that a test gives."""

    def __init__(self) -> None:
        odd = self
        self.answer = b""

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.wfile.write(odd.answer)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.do_GET()

            def do_PUT(self) -> None:
                self.do_POST()

            def do_DELETE(self) -> None:
                self.do_GET()

            def log_message(self, *_words: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01])
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def body(self, body: bytes) -> None:
        """Answer 200 with these bytes from now on."""
        self.answer = b"HTTP/1.1 200 OK\r\n\r\n" + body
