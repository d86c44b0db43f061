"""`ottla` in the process of the test, with streams of its own: no interpreter is started."""

from __future__ import annotations

import subprocess
from io import BytesIO, StringIO, TextIOWrapper

from ottla.cli.main import main
from ottla.cli.terminal import Terminal


def run_here(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `ottla` with these words to its end, with the real clients.

    What a process of its own adds is the same for all commands: standard streams, signals and the
    status. tests/system/commands/test_console.py and tests/system/archive see to these.
    """
    arguments = [str(word) for word in words]
    raw, err = BytesIO(), StringIO()
    out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
    source = BytesIO(stdin.encode())
    status = main(arguments, Terminal(source=source, out=out, raw_out=raw, err=err))
    return subprocess.CompletedProcess(arguments, status, raw.getvalue().decode(), err.getvalue())
