"""The README runs as written: its commands, its Python, its links."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from urllib.request import urlopen

import pytest
from page import LIMIT_S, ROOT, Page, Shell

# One program, from the first command to the Spark example, so that all of it runs in one place.
pytestmark = pytest.mark.spark

README = Page("README.md")
PIPELINE = re.compile(r"^ottla pipeline run (.+)$", re.MULTILINE)
ADDRESS = "localhost:9092"


@pytest.fixture(scope="module")
def fresh_broker(tmp_path_factory):
    """The broker that the README starts, on a port of its own."""
    from ottla.testing.processes import BrokerProcess

    process = BrokerProcess(tmp_path_factory.mktemp("readme") / "data").start()
    yield process
    assert process.stop() == 0


def at(broker):
    """Puts the address of the test's broker for that of the page."""
    return lambda text: text.replace(ADDRESS, broker.bootstrap_servers)


def test_the_commands_print_what_is_shown(fresh_broker):
    """Every console command after the one that starts the broker does what the README shows."""
    start, *others = README.conversations()
    assert start[0].startswith("ottla broker ")

    shell = Shell(None, at(fresh_broker))
    for command, shown in others:
        assert (command, shell.run(command)) == (command, shown)


def test_the_python_of_the_clients_runs(fresh_broker, capsys):
    """The producer sends, and the consumer prints what is in the topic."""
    (code,) = [text for text in README.blocks_in("python") if "ottla.Producer" in text]

    exec(compile(at(fresh_broker)(code), "README", "exec"), {})

    assert "hello from Python" in capsys.readouterr().out


def test_the_python_of_spark_runs(fresh_broker, spark, capsys):
    """The Spark example reads the topic that the commands filled."""
    (code,) = [text for text in README.blocks_in("python") if "spark.read" in text]
    names = {"spark": spark}

    exec(compile(at(fresh_broker)(code), "README", "exec"), names)

    assert "hello" in capsys.readouterr().out


def test_the_pipelines_run_and_report(java, fork_server, complaints, tmp_path):
    """A run over a log ends by itself; a continuous one ends cleanly with Ctrl-C after a batch."""
    from ottla.pipelines.access_log import SiteActivity

    (tmp_path / "access.log").write_bytes(b"\n".join(SiteActivity(7, 300).lines()))
    commands = {words.split()[0]: words for words in PIPELINE.findall(README.text)}
    assert ["--continuous" in words for words in commands.values()] == [False, True]

    for name, words in commands.items():
        last = run_pipeline(words, tmp_path, complaints)

        counts = re.fullmatch(
            rf"{name}: (\d+) events in, (\d+) read, 0 did not parse, 0 late", last
        )
        events_in, read = map(int, counts.groups())
        assert 0 < read <= events_in
        page = (tmp_path / "pipeline-output" / name / "report.html").read_text(encoding="utf-8")
        assert ">records waiting</th>" in page, "no batches are listed"
        assert 'http-equiv="refresh"' not in page


def run_pipeline(words, folder, complaints):
    """Run a pipeline in a folder, until its first batch if it would not end; its last line."""
    shell = Shell(folder, str)
    process = shell.begin(f"ottla pipeline run {words}", stderr=subprocess.PIPE)
    lines, is_running_on = [], "--continuous" in words
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("Spark's own pages: "):
                with urlopen(line.split()[-1], timeout=LIMIT_S) as answer:
                    assert answer.status == 200
            if is_running_on and " s a batch" in line:
                is_running_on = False
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        status = process.wait(LIMIT_S)
        said = process.stderr.read()
    finally:
        shell.close()
    assert (status, complaints(said)) == (0, ""), lines
    assert ("stopped" in lines) == ("--continuous" in words)
    assert any("Spark's own pages" in line for line in lines) == ("--spark-ui" in words)
    return lines[-1]


def test_the_make_targets_are_there_and_told():
    """What the README names is in the Makefile, and what `make help` shows is in the README."""
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"\bmake ([a-z]+)", README.text))

    assert named <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE)) - {"help"} <= named
