"""Children end with their parents."""

from __future__ import annotations

import subprocess
import sys

import pytest

STARTING = """
import subprocess, sys
from ottla.runtime.child_process import ending_with_parent
subprocess.Popen(["sleep", "600"], preexec_fn=ending_with_parent(), start_new_session=True)
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel promises it")
def test_child_ends_with_a_parent_that_is_killed():
    """The pipe that both have ends when the last of them has ended."""
    command = [sys.executable, "-c", STARTING]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        assert parent.stdout.read() == ""
