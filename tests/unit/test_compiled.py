"""The core as source and compiled: which one is there, and which one is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import ottla
from ottla.compiled import is_core_compiled
from ottla.errors import RemoteProtocolError
from ottla.protocol.header import after_tags

ROOT = Path(__file__).parents[2]
SOURCE = Path(ottla.__file__).parent
CORE = (ROOT / "release" / "core.txt").read_text(encoding="utf-8").split()

WHERE = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    print(import_module(name).__file__)
"""


def files_of(*modules: str, **environment: str) -> list[Path]:
    """The files that a Python of its own imports modules from."""
    output = subprocess.check_output(
        [sys.executable, "-c", WHERE, *modules], env={**os.environ, **environment}, text=True
    )
    return [Path(line) for line in output.splitlines()]


def test_compiled_modules_are_those_of_the_list():
    """All of the core is compiled from the source that is there, or nothing is."""
    sources = {SOURCE.parent / name for name in CORE}
    assert all(path.is_file() for path in sources)

    suffix = EXTENSION_SUFFIXES[0]
    found = {path for path in SOURCE.rglob(f"*{suffix}") if not path.name.startswith("native_")}
    compiled = {path.with_name(f"{path.stem}{suffix}"): path for path in sources}
    assert found == (set(compiled) if is_core_compiled() else set())
    assert not [path for path in found if path.stat().st_mtime < compiled[path].stat().st_mtime], (
        "source that is newer than what is compiled of it: `make compiled`, or `make pure`"
    )


def test_pure_imports_the_source():
    """OTTLA_PURE=1 asks for plain Python whether or not anything has been compiled."""
    assert files_of("ottla.log.log", "ottla.server.apis", OTTLA_PURE="1") == [
        SOURCE / "log" / "log.py",
        SOURCE / "server" / "apis.py",
    ]


@pytest.mark.skipif(not is_core_compiled(), reason="the core is not compiled: `make compiled`")
def test_tracebacks_of_a_compiled_core_have_lines():
    """The file, the line and the function are those of the source."""
    try:
        after_tags(b"", 0)
    except RemoteProtocolError:
        shown = traceback.format_exc()

    assert re.search(r'File "ottla/protocol/header.py", line \d+, in after_tags', shown)
