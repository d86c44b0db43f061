"""Copies a topic with Spark while its driver is killed at random moments, again and again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from committed_records import committed_values
from spark_copier import start_copy

import ottla

COPIER = Path(__file__).with_name("spark_copier.py")
LIMIT_SECONDS = 300


class Copy:
    """A topic that is copied; `longest_s` is how long a driver may live once it is running."""

    def __init__(self, servers, folder, records, per_batch, longest_s):
        self.servers, self.folder, self.records = servers, folder, records
        self.per_batch, self.longest_s = per_batch, longest_s
        with ottla.Admin(servers) as admin:
            admin.create_topics([ottla.NewTopic("from", 2), ottla.NewTopic("to", 2)])
        with ottla.Producer(servers, linger_ms=5) as producer:
            for number in range(records):
                producer.send("from", b"%d" % number)

    def start(self):
        """A driver, in a process group of its own."""
        arguments = [self.servers, "from", "to", str(self.folder / "checkpoint")]
        with (self.folder / "drivers.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, str(COPIER), *arguments, str(self.per_batch)],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )

    def run_and_kill(self, moments):
        """Whether the driver was killed before it was through; sometimes its workers live on."""
        driver = self.start()
        try:
            driver.stdout.readline()
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


def copy_with_kills(servers, folder, *, records, per_batch, kills, longest_s, seed, spark=None):
    """Every record has to be there once, for readers that see only what is committed.

    The last driver is a process as well, unless there is a session to end the copy in.
    """
    copy = Copy(servers, folder, records, per_batch, longest_s)
    moments = random.Random(seed)
    killed = sum(copy.run_and_kill(moments) for _ in range(kills))
    if spark is None:
        copy.run_to_end()
    else:
        checkpoint = str(folder / "checkpoint")
        query = start_copy(spark, servers, "from", "to", checkpoint, str(per_batch))
        assert query.awaitTermination(LIMIT_SECONDS)

    found = sorted(map(int, committed_values(servers, "to")))
    assert found == list(range(records)), f"seed {seed}: {len(found)} of {records} records"
    return killed
