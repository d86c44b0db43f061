"""`ottla demo` as a person runs it; its tables are compared with figures that are counted here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter, defaultdict
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ottla.runtime.own_folder import OwnFolder
from ottla.testing import wait_until

pytestmark = pytest.mark.spark

LINE = re.compile(
    r'(\S+) \S+ \S+ \[([^]]+)\] "((?:[^"\\]|\\.)*)" (\d+) (\d+|-) '
    r'"((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"'
)
ASSETS = (
    *("css", "js", "png", "jpg", "jpeg", "gif", "ico"),
    *("svg", "webp", "woff", "woff2", "ttf", "map"),
)
LIMIT_S = 500
CRAWLER_WORDS = ("bot", "crawl", "spider", "slurp")


class Figures:
    """What the tables must hold, counted line by line."""

    def __init__(self, lines):
        self.malformed = []
        self.per_minute, self.pages, self.errors, self.agents = (
            defaultdict(lambda: [0, 0, set()]) for _ in range(4)
        )
        self.rates = defaultdict(Counter)
        for line in lines:
            found = LINE.fullmatch(line)
            if found is None:
                self.malformed.append(line)
            else:
                self.add(*found.groups())

    def add(self, client, time, request, status, size, _referrer, agent):
        minute = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").replace(second=0)
        path = request.split(" ")[1].split("?")[0]
        size = 0 if size == "-" else int(size)
        self.count(self.per_minute[minute], client, size)
        if self.is_page(path, status):
            self.count(self.pages[path], client, size)
        if int(status) >= 400:
            self.count(self.errors[int(status), path], client)
        if any(word in agent.lower() for word in CRAWLER_WORDS):
            self.count(self.agents[agent], client)
        self.rates[client][minute] += 1

    def count(self, entry, client, size=0):
        entry[0] += 1
        entry[1] += size
        entry[2].add(client)

    def is_page(self, path, status):
        return int(status) < 400 and path.lower().rpartition(".")[2] not in ASSETS

    def expected(self):
        """Every table as a set of rows, the columns in the order of their names."""
        return {
            "traffic_per_minute": {
                (size, len(clients), minute.timestamp(), count)
                for minute, (count, size, clients) in self.per_minute.items()
            },
            "top_pages": {
                (size, len(clients), path, count)
                for path, (count, size, clients) in self.pages.items()
            },
            "errors": {
                (len(clients), path, count, status)
                for (status, path), (count, _, clients) in self.errors.items()
            },
            "crawlers_by_user_agent": {
                (len(clients), count, agent) for agent, (count, _, clients) in self.agents.items()
            },
            "crawlers_by_rate": {
                (
                    client,
                    sum(count > 30 for count in minutes.values()),
                    max(minutes.values()),
                    sum(minutes.values()),
                )
                for client, minutes in self.rates.items()
                if max(minutes.values()) > 30
            },
        }


def table(output, name):
    """A table that the demo wrote."""
    return pq.read_table(output / name, partitioning=None)


def rows(output, name):
    """Its rows in the form of `Figures.expected`; moments as seconds since 1970."""
    data = table(output, name)
    assert data.num_rows == len({tuple(row.items()) for row in data.to_pylist()})
    return {
        tuple(
            value.timestamp() if isinstance(value, datetime) else value
            for _, value in sorted(row.items())
        )
        for row in data.to_pylist()
    }


def run_demo(complaints, output, *arguments):
    """Run it to its end, as a program of its own; its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "demo", "--output", str(output), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=dict(os.environ, PYTHONIOENCODING="utf-8"),
    )
    assert (done.returncode, complaints(done.stderr)) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


class Page(HTMLParser):
    """The text of the report, and everything that it would load."""

    def __init__(self, text):
        super().__init__()
        self.text, self.loads = [], []
        self.feed(text)
        self.loads += re.findall(r"url\((?!#)[^)]*\)|@import", text)

    def handle_starttag(self, tag, attributes):
        names = ("src", "href", "xlink:href", "srcset", "data", "action", "poster")
        self.loads += [
            (tag, name, value)
            for name, value in attributes
            if name in names and not value.startswith("#")
        ]

    def handle_data(self, data):
        self.text.append(data.strip())


def check_report(output, *texts):
    """The page loads nothing, and shows these texts."""
    page = Page((output / "report.html").read_text(encoding="utf-8"))

    assert page.loads == []
    assert set(texts) <= set(page.text)


@pytest.mark.wide
def test_demo_of_a_real_log(run_here, access_log, tmp_path):
    """Every line of the log is accounted for, and every figure is that of a plain script."""
    lines = access_log.read_text(encoding="utf-8").splitlines()
    figures = Figures(lines)
    output = tmp_path / "demo-output"

    printed = run_here("demo", "--output", output, "--log", access_log)

    assert printed[-1] == "demo: 10000 events in, 10000 read by the pipeline, 0 lost, 0 duplicated"
    assert "9,999 parsed + 1 malformed = 10,000 rows; 1 in web-traffic.dead-letter" in printed
    for name, expected in figures.expected().items():
        assert rows(output, name) == expected, name
    malformed = table(output, "malformed").to_pylist()
    assert [row["raw"].decode() for row in malformed] == figures.malformed
    assert len(figures.malformed) == 1
    assert sum(table(output, "traffic_per_minute")["requests"].to_pylist()) == 9_999
    top = figures.pages["/"][0]
    check_report(output, "10,000", f"{top:,}", "events in", "lost", "2015-05-17 10:05")


def test_demo_of_generated_events(java, complaints, tmp_path, monkeypatch):
    """Without a log it says what it makes up; what a former run left is replaced, nothing else.

    It starts all that it needs by itself.
    """
    from ottla.pipelines.runner import PYTHONS
    from ottla.pipelines.site_traffic import SiteActivity

    for name in PYTHONS:
        monkeypatch.delenv(name, raising=False)

    output = tmp_path / "out"
    (output / "checkpoints" / "web-traffic-events").mkdir(parents=True)
    (output / "top_pages").mkdir()
    (output / "top_pages" / "old.parquet").write_bytes(b"from a former run")
    (output / "mine.txt").write_text("keep")
    figures = Figures(line.decode() for line in SiteActivity(7, 3000).lines())

    printed = run_demo(complaints, output, "--events", "3000", "--seed", "7")

    assert printed[0] == "events: 3,000 generated events (no log was given; seed 7)"
    assert printed[-1] == "demo: 3000 events in, 3000 read by the pipeline, 0 lost, 0 duplicated"
    assert (output / "mine.txt").read_text() == "keep"
    for name, expected in figures.expected().items():
        assert rows(output, name) == expected, name
    (counts,) = table(output, "completeness").to_pylist()
    assert (counts["in_topic"], counts["rows"], counts["duplicated"]) == (3000, 3000, 0)
    check_report(output, "3,000", "How this was made")


def run_with_queries(opener, twin):
    """The run as the console has it, once it has read of the queries; None before."""
    with opener.open(twin) as answer:
        data = json.load(answer)
    return data if data["queries"] else None


@pytest.mark.wide
def test_demo_has_its_console(java, tmp_path):
    """Its page has the records, the queries that have ended, and the report; Ctrl-C ends both."""
    words = ["demo", "--console", "--events", "3000", "--output", str(tmp_path / "out")]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "ottla", *words], stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        try:
            lines: list[str] = []
            while "the console stays" not in (line := demo.stdout.readline()):
                assert line, lines
                lines.append(line)
            (url,) = re.findall(r"ready at (\S+)", "".join(lines))
            opener.open(url).close()
            twin = url.partition("?")[0] + ".json"
            data = wait_until(lambda: run_with_queries(opener, twin), "the queries")
            with opener.open(url.partition("?")[0] + "/report.html") as answer:
                assert "How this was made" in answer.read().decode()
        finally:
            demo.send_signal(signal.SIGINT)
        assert demo.wait(LIMIT_S) == 0
    assert lines[-1].startswith("demo: 3000 events in, 3000 read")
    assert sum(each["records"] for each in data["topics"]) >= 3000
    assert {each["state"] for each in data["queries"]} == {"ended"}


def is_running(pid):
    """Whether a process has not ended; one whose parent has not asked for its status has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.wide
def test_killed_demo_leaves_no_process_and_no_folder(tmp_path, monkeypatch):
    """Its broker and its console end with it; the next one removes its folder."""
    words = ["demo", "--console", "--output", str(tmp_path / "out")]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "ottla", *words], stdout=subprocess.PIPE, text=True
    ) as demo:
        while "ready at" not in (line := demo.stdout.readline()):
            assert line
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        assert len(children) >= 2
        demo.kill()
    wait_until(lambda: not any(map(is_running, children)), "the end of all")
    assert list(tmp_path.glob("ottla-demo-*"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    OwnFolder("ottla-demo-").close()
    assert not list(tmp_path.glob("ottla-demo-*"))
