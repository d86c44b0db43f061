"""Which process listens on a port of this machine, and the error for a port that is taken."""

from __future__ import annotations

import errno
import os
import socket

from ottla.cli.local_ports import in_use, listener
from ottla.runtime.free_port import free_port


def test_process_that_has_the_port_is_named():
    """The process that has a port is named, to be stopped; a free port belongs to nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"cannot listen on 127.0.0.1:{port}: Address already in use"
        error = str(in_use(OSError(errno.EADDRINUSE, line)))

    assert error.startswith(f"{line} by ")
    assert error.endswith(f" (process {os.getpid()})")
    assert listener(free_port("127.0.0.1")) is None


def test_other_failures_to_listen_are_told_as_they_are():
    """Only a port in use has somebody who uses it."""
    error = OSError(errno.EACCES, "cannot listen on 127.0.0.1:80: Permission denied")

    assert str(in_use(error)) == "cannot listen on 127.0.0.1:80: Permission denied"
