"""The JVM of Spark that tests share: for sessions of their own, and for programs that they start.

A JVM is slow until it has loaded and compiled what a query needs, which takes ten seconds of a core
and more; PySpark takes one that is there if its environment names it. What tests the start of a
driver, or kills one, has a JVM of its own.

A JVM knows the functions that it calls back (`foreachBatch`) by numbers, which each process gives
out from 0 on, and tells the process it has at the moment when it has lost one. So the tests count
from elsewhere, and no two programs with such functions may have the same JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaObject

FIRST_OF_TESTS = 1_000_000


class SparkJvm:
    """A JVM with at most one session in it."""

    def __init__(self) -> None:
        self._session: Any = None

    def session(self) -> Any:
        """The session of the tests, a new one if a program has had the JVM in between."""
        from ottla.pipelines.runner import spark_session

        if self._session is None:
            self._session = spark_session("tests", short_run=True)
            functions = self._session.sparkContext._gateway.gateway_property.pool
            functions.next_id = max(functions.next_id, FIRST_OF_TESTS)
        return self._session

    @contextmanager
    def lent(self) -> Iterator[dict[str, str]]:
        """The environment in which one program after the other has its sessions in this JVM."""
        gateway = self.session().sparkContext._gateway
        self.close()
        yield {
            "PYSPARK_GATEWAY_PORT": str(gateway.java_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.java_parameters.auth_token,
        }
        take_back(gateway)

    def close(self) -> None:
        """End the session; the JVM ends with the process."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def take_back(gateway: Any) -> None:
    """End what a program has left behind, and have the JVM call the functions of this process."""
    left = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    if left.isDefined():
        left.get().stop()
    if gateway.__dict__.get("_callback_server") is not None:
        server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        address = server.getCallbackClient().getAddress()
        server.resetCallbackClient(address, gateway._python_proxy_port)
