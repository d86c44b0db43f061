"""The options of `ottla mirror-maker`, and a run from start to SIGINT as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ottla import Producer
from ottla.testing import InProcessBroker

COMPLETE = ("--consumer.config", "a", "--producer.config", "b", "--whitelist", "x")


@pytest.fixture
def files(tmp_path):
    """`files(name, **settings)` writes a property file and returns its path."""

    def write(name, **settings):
        path = tmp_path / f"{name}.properties"
        lines = [f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()]
        path.write_text("".join(lines))
        return path

    return write


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "missing required option --consumer.config"),
        (("--consumer.config", "a"), "missing required option --producer.config"),
        (
            ("--consumer.config", "a", "--producer.config", "b"),
            "exactly one of --whitelist, --blacklist is needed",
        ),
        (
            (*COMPLETE, "--num.streams", "0"),
            "--num.streams takes a number from 1 to 2147483647, not '0'",
        ),
        (
            (*COMPLETE, "--message.handler.args", "y"),
            "option --message.handler.args is used only with --message.handler",
        ),
    ],
)
def test_options_are_checked(ottla, words, message):
    """A mistake is one line that names the option."""
    outcome = ottla("mirror-maker", *words)

    assert outcome.status == 1
    assert message in outcome.err


def test_unreachable_clusters_are_said_at_once(ottla, files):
    """A wrong address is no endless wait."""
    nowhere = files("nowhere", bootstrap_servers="localhost:1", group_id="g")
    words = ("--consumer.config", nowhere, "--producer.config", nowhere, "--whitelist", ".*")

    assert "cannot connect to a broker" in ottla("mirror-maker", *words).err


def test_producer_file_without_servers_is_refused(ottla, files):
    """The target must be named."""
    with InProcessBroker() as site:
        consumer = files("site", bootstrap_servers=site.bootstrap_servers, group_id="g")
        producer = files("centre", acks="all")
        words = ("--consumer.config", consumer, "--producer.config", producer, "--whitelist", "x")

        assert "must have bootstrap.servers" in ottla("mirror-maker", *words).err


def test_mirror_runs_until_it_is_interrupted(files):
    """`kafka-mirror-maker.sh` copies, and at Ctrl-C commits and says how much."""
    with InProcessBroker() as site, InProcessBroker() as centre:
        with Producer(site.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("pages", str(number))
        consumer = files("site", bootstrap_servers=site.bootstrap_servers, group_id="mirror")
        target = files("centre", bootstrap_servers=centre.bootstrap_servers)
        words = ["kafka-mirror-maker.sh", "--consumer.config", consumer]
        words += ["--producer.config", target, "--whitelist", "pages"]
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *map(str, words)],
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONWARNINGS="ignore"),
        )
        try:
            centre.wait_for_records("pages", 20)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()

        assert process.returncode == 0, err
        assert "mirror-maker: 20 records copied, 0 not" in err
        assert sum(site.committed("mirror").values()) == 20
