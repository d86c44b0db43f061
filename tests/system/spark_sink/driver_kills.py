"""Copies a topic with Spark while its driver is killed at random moments, again and again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from committed_records import committed_pairs, committed_values
from spark_copier import WAIT_S, start_copy
from spark_counter import counter

import ottla

COPIER = Path(__file__).with_name("spark_copier.py")
COUNTER = Path(__file__).with_name("spark_counter.py")
LIMIT_SECONDS = 1800


class Driver:
    """A command that runs Spark; `ready` begins the line that it prints when it is at work, and
    `longest_s` is how long it may live after that."""

    def __init__(self, command, folder, ready, longest_s):
        self.command, self.folder = command, folder
        self.ready, self.longest_s = ready, longest_s

    def start(self):
        """A driver, in a process group of its own."""
        with (self.folder / "drivers.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, *self.command],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )

    def run_and_kill(self, moments):
        """Whether the driver was killed before it was through; sometimes its workers live on."""
        driver = self.start()
        try:
            while not driver.stdout.readline().startswith(self.ready):
                assert driver.poll() is None, (self.folder / "drivers.log").read_text()[-9000:]
            driver.wait(moments.uniform(0, self.longest_s))
        except subprocess.TimeoutExpired:
            if moments.random() < 0.5:
                java = [p for p in psutil.Process(driver.pid).children() if "java" in p.name()]
                for process in java:
                    process.kill()
                driver.kill()
                driver.wait()
            return True
        finally:
            self.end(driver)
        return False

    def run_to_end(self):
        """The last driver is left alone."""
        driver = self.start()
        try:
            assert driver.wait(LIMIT_SECONDS) == 0, (self.folder / "drivers.log").read_text()[
                -9000:
            ]
        finally:
            self.end(driver)

    def end(self, driver):
        """Nothing of it is left."""
        try:
            os.killpg(driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all have ended by themselves
        driver.wait()
        driver.stdout.close()


def fill(servers, topics, records):
    """Topics of two partitions; the first has records of the numbers from 0 on."""
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, 2) for topic in topics])
    with ottla.Producer(servers, linger_ms=5) as producer:
        for number in range(records):
            producer.send(topics[0], b"%d" % number)


def copy_with_kills(servers, folder, *, records, per_batch, kills, longest_s, seed, spark=None):
    """Every record has to be there once, for readers that see only what is committed.

    The last driver is a process as well, unless there is a session to end the copy in.
    """
    fill(servers, ["from", "to"], records)
    arguments = [servers, "from", "to", str(folder / "checkpoint"), str(per_batch)]
    driver = Driver([str(COPIER), *arguments, "endless"], folder, "running", longest_s)
    moments = random.Random(seed)
    killed = sum(driver.run_and_kill(moments) for _ in range(kills))
    if spark is None:
        Driver([str(COPIER), *arguments], folder, "running", longest_s).run_to_end()
    else:
        query = start_copy(spark, *arguments)
        while not query.wait(WAIT_S):
            pass

    found = sorted(map(int, committed_values(servers, "to")))
    assert found == list(range(records)), f"seed {seed}: {len(found)} of {records} records"
    return killed


def count_with_kills(servers, folder, *, records, kills, longest_s, seed):
    """Each key is counted right, and no count comes twice, although checkpoints are lost.

    Between two kills as many records come again; every other time the folder is deleted.
    """
    keys = 50
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("numbers", 2), ottla.NewTopic("counts", 1)])
    state = folder / "state"
    driver = Driver([str(COUNTER), servers, str(state)], folder, "running", longest_s)
    moments = random.Random(seed)
    killed = 0
    for number in range(kills):
        fill_keys(servers, keys, records)
        killed += driver.run_and_kill(moments)
        if number % 2:
            shutil.rmtree(state)
    fill_keys(servers, keys, records)
    counter(servers, state).run_once()

    found = {}
    for key, value in committed_pairs(servers, "counts"):
        count = int.from_bytes(value, "big")
        assert count > found.get(key, 0), f"seed {seed}: {key} had {found[key]}, then {count}"
        found[key] = count
    assert len(found) == keys
    assert sum(found.values()) == (kills + 1) * records, f"seed {seed}: {found}"
    return killed


def fill_keys(servers, keys, records):
    """Records of `numbers`, some for each key."""
    with ottla.Producer(servers, linger_ms=5) as producer:
        for number in range(records):
            producer.send("numbers", b"", key=b"%d" % (number % keys))
