"""The README runs as written: its commands, its Python, its links."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from urllib.request import urlopen

import pytest
from page import LIMIT_S, ROOT, Page, Shell

import ottla

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


def test_the_python_of_tables_runs(fresh_broker, capsys):
    """The table has what the commands and the producer have sent."""
    (code,) = [text for text in README.blocks_in("python") if "read_arrow" in text]

    exec(compile(at(fresh_broker)(code), "README", "exec"), {"ottla": ottla})

    assert capsys.readouterr().out == "2 ['key', 'value', 'offset']\n"


def test_the_python_of_spark_runs(fresh_broker, spark, capsys):
    """The Spark example reads the topic that the commands filled."""
    (code,) = [text for text in README.blocks_in("python") if "spark.read" in text]
    names = {"spark": spark}

    exec(compile(at(fresh_broker)(code), "README", "exec"), names)

    assert "hello" in capsys.readouterr().out


def pipelines():
    """The words of the README's two runs: one over a log, and a continuous one."""
    once, continuous = PIPELINE.findall(README.text)
    assert ("--continuous" in once, "--continuous" in continuous) == (False, True)
    return once, continuous


def check_pipeline(words, lines, folder):
    """Everything was read, and a report is there that lists the batches."""
    name = words.split()[0]
    counts = re.fullmatch(
        rf"{name}: (\d+) events in, (\d+) read, 0 did not parse, 0 late", lines[-1]
    )
    events_in, read = map(int, counts.groups())
    assert 0 < read <= events_in
    page = (folder / "pipeline-output" / name / "report.html").read_text(encoding="utf-8")
    assert ">records waiting</th>" in page, "no batches are listed"
    assert 'http-equiv="refresh"' not in page


def test_the_pipeline_over_a_log_runs_and_reports(run_here, monkeypatch, tmp_path):
    """It ends by itself."""
    from ottla.pipelines.site_traffic import SiteActivity

    words, _ = pipelines()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "access.log").write_bytes(b"\n".join(SiteActivity(7, 300).lines()))

    lines = run_here("pipeline", "run", *words.split())

    check_pipeline(words, lines, tmp_path)
    assert "stopped" not in lines
    assert any("Spark's own pages" in line for line in lines) == ("--spark-ui" in words)


@pytest.mark.wide
def test_the_continuous_pipeline_runs_and_reports(java, fork_server, complaints, tmp_path):
    """It shows Spark's own pages, and ends cleanly with Ctrl-C after a batch."""
    _, words = pipelines()
    shell = Shell(tmp_path, str)
    process = shell.begin(f"ottla pipeline run {words}", stderr=subprocess.PIPE)
    lines, is_running_on, pages = [], True, []
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("Spark's own pages: "):
                with urlopen(line.split()[-1], timeout=LIMIT_S) as answer:
                    pages.append(answer.status)
            if is_running_on and " s a batch" in line:
                is_running_on = False
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        status = process.wait(LIMIT_S)
        said = process.stderr.read()
    finally:
        shell.close()

    assert (status, complaints(said)) == (0, ""), lines
    assert "stopped" in lines
    assert pages == [200] * ("--spark-ui" in words)
    check_pipeline(words, lines, tmp_path)


def test_the_make_targets_are_there_and_told():
    """The README names some; CONTRIBUTING.md has a row for each that `make help` shows."""
    makefile = (ROOT / "Makefile").read_text()
    pages = README.text + Page("CONTRIBUTING.md").text
    named = set(re.findall(r"\bmake ([a-z]+)", pages))

    assert named <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE)) - {"help"} <= named
