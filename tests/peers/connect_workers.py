"""Kafka's worker of Connect, a JVM, in the shape of `WorkerProcess`."""

from __future__ import annotations

from benchmarks.peers.downloads import maven_jars, require
from benchmarks.peers.kafka_tools import JVM_OPTIONS
from connect_group import WorkerProcess

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
LOG = "-Dorg.apache.logging.log4j.level=INFO"


class JavaWorker(WorkerProcess):
    """A worker of Apache Kafka 4.1."""

    kind = "java"

    def command(self) -> list[str]:
        java = require("java", "a Java runtime, 17 or newer")
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        jars = f"{maven_jars('connect-4.1')}/*"
        return [java, *JVM_OPTIONS, LOG, "-cp", jars, program, str(self.file)]
