"""A tool run as its users run it: again, where the broker that it asked had not heard of a topic.

A topic is made when the controller says so; the other brokers hear of it a moment later.
"""

from __future__ import annotations

import re
import subprocess

from command_here import run_here

from ottla.testing import wait_until

NOT_HEARD = re.compile(r"UNKNOWN_TOPIC_OR_PARTITION|topic\S* .*does not exist", re.IGNORECASE)


def run_tool(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    """How `ottla` ends with these words, which name no topic that is not there at all."""
    outcomes: list[subprocess.CompletedProcess[str]] = []

    def has_heard() -> bool:
        done = run_here(name, *words)
        outcomes.append(done)
        return done.returncode == 0 or not NOT_HEARD.search(done.stderr)

    wait_until(has_heard, f"the brokers have heard of the topics of {name} {words}")
    return outcomes[-1]
