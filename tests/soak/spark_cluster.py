"""A standalone Spark cluster on this machine: a master and workers, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
STARTUP_SECONDS = 60


class Daemon:
    """A process of Spark, up when it has logged what says so."""

    def __init__(self, class_name, arguments, ready, log):
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{class_name}"]
        places = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        self.log = log.open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            [*command, *places, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.found = self._until(re.compile(ready))
        self.drain = threading.Thread(target=self._drain, daemon=True)
        self.drain.start()

    def _until(self, ready):
        killer = threading.Timer(STARTUP_SECONDS, self.process.kill)
        killer.start()
        try:
            for line in self.process.stderr:
                self.log.write(line)
                if found := ready.search(line):
                    return found
        finally:
            killer.cancel()
        raise AssertionError(f"Spark did not come up; {self.log.name} says why")

    def _drain(self):
        for line in self.process.stderr:
            self.log.write(line)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.drain.join()
        self.process.stderr.close()
        self.log.close()


class Cluster:
    """A master and workers of one core each; `url` is what --master wants."""

    def __init__(self, folder, worker_count):
        self.folder = folder
        master = Daemon("master.Master", [], r"(spark://\S+:\d+)", folder / "master.log")
        self.url = master.found[1]
        self.daemons = [master]
        for number in range(worker_count):
            self.daemons.append(self._worker(number))

    def _worker(self, number):
        work = self.folder / f"worker-{number}"
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url]
        ready = "Successfully registered with master"
        return Daemon("worker.Worker", arguments, ready, self.folder / f"worker-{number}.log")

    def executors(self):
        """The executors that each worker has run."""
        return [len(list(self.folder.glob(f"worker-{n}/app-*/*"))) for n in range(2)]

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.stop()
