"""The README runs as written: its commands, its Python, its links."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# One program, from the first command to the Spark example, so that all of it runs in one place.
pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PIPELINE = re.compile(r"^ottla pipeline run (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"


def blocks(language):
    """The code blocks of one language, in order."""
    return [text for name, text in BLOCK.findall(README) if name == language]


def conversations(text):
    """Commands of a console block, each with the output that is shown below it."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], []])
        else:
            found[-1][1].append(line)
    return found


def environment():
    """Variables with which a shell finds `ottla`, and prints its lines at once."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return dict(os.environ, PATH=path, PYTHONUNBUFFERED="1")


def run(command, broker):
    """Run a command of the README against the test's broker; stdout and stderr together."""
    return subprocess.run(
        ["bash", "-c", command.replace(ADDRESS, broker.bootstrap_servers)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def fresh_broker(tmp_path_factory):
    """The broker that the README starts, on a port of its own."""
    from ottla.testing.broker_process import BrokerProcess

    process = BrokerProcess(tmp_path_factory.mktemp("readme") / "data").start()
    yield process
    assert process.stop() == 0


def test_the_commands_print_what_is_shown(fresh_broker):
    """Every console command after the one that starts the broker does what the README shows."""
    start, *others = [pair for text in blocks("console") for pair in conversations(text)]
    assert start[0].startswith("ottla broker ")

    for command, shown in others:
        done = run(command, fresh_broker)
        printed = (done.stdout + done.stderr).splitlines()
        assert (command, done.returncode, printed) == (command, 0, shown)


def test_the_python_of_the_clients_runs(fresh_broker, capsys):
    """The producer sends, and the consumer prints what is in the topic."""
    (code,) = [text for text in blocks("python") if "ottla.Producer" in text]

    exec(compile(code.replace(ADDRESS, fresh_broker.bootstrap_servers), "README", "exec"), {})

    assert "hello from Python" in capsys.readouterr().out


def test_the_python_of_spark_runs(fresh_broker, spark, capsys):
    """The Spark example reads the topic that the commands filled."""
    (code,) = [text for text in blocks("python") if "spark.read" in text]
    names = {"spark": spark}

    exec(compile(code.replace(ADDRESS, fresh_broker.bootstrap_servers), "README", "exec"), names)

    assert "hello" in capsys.readouterr().out


def test_the_pipelines_run_and_report(spark, tmp_path):
    """A run over a log ends by itself; a continuous one ends cleanly with Ctrl-C after a batch."""
    from ottla.pipelines.site_activity import SiteActivity

    (tmp_path / "access.log").write_bytes(b"\n".join(SiteActivity(7, 300).lines()))
    commands = {words.split()[0]: words for words in PIPELINE.findall(README)}
    assert ["--continuous" in words for words in commands.values()] == [False, True]

    for name, words in commands.items():
        last = run_pipeline(words, tmp_path)

        counts = re.fullmatch(
            rf"{name}: (\d+) events in, (\d+) read, 0 did not parse, 0 late", last
        )
        events_in, read = map(int, counts.groups())
        assert 0 < read <= events_in
        page = (tmp_path / "pipeline-output" / name / "report.html").read_text(encoding="utf-8")
        assert "Micro-batches" in page
        assert 'http-equiv="refresh"' not in page


def run_pipeline(words, folder):
    """Run a pipeline in a folder, until its first batch if it would not end; its last line."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec ottla pipeline run {words}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=folder,
        process_group=0,
    )
    lines, is_running_on = [], "--continuous" in words
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if is_running_on and " s a batch" in line:
                is_running_on = False
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        status = process.wait(120)
        said = process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert (status, said) == (0, ""), lines
    assert ("stopped" in lines) == ("--continuous" in words)
    return lines[-1]


def test_the_make_targets_exist():
    """Every make target that the README names is in the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z]+)", README)) <= targets


def test_the_links_lead_somewhere():
    """Every file that the README links to is there."""
    links = re.findall(r"\]\(([^)#:]+)\)", README)

    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
