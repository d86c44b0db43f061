"""The JVM of Spark that tests share: for sessions of their own, and for programs that they start.

A JVM is slow until it has loaded and compiled what a query needs, which takes ten seconds of a core
and more; PySpark takes one that is there if its environment names it. What tests the start of a
driver, or kills one, has a JVM of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SparkJvm:
    """A JVM with at most one session in it."""

    def __init__(self) -> None:
        self._session: Any = None

    def session(self) -> Any:
        """The session of the tests, a new one if a program has had the JVM in between."""
        from ottla.pipelines.runner import spark_session

        if self._session is None:
            self._session = spark_session("tests", short_run=True)
        return self._session

    @contextmanager
    def lent(self) -> Iterator[dict[str, str]]:
        """The environment in which one program after the other has its sessions in this JVM."""
        context = self.session().sparkContext
        names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        python = dict.fromkeys(names, context.pythonExec)
        gateway = context._gateway
        self.close()
        try:
            yield python | {
                "PYSPARK_GATEWAY_PORT": str(gateway.java_parameters.port),
                "PYSPARK_GATEWAY_SECRET": gateway.java_parameters.auth_token,
            }
        finally:
            take_back(gateway)

    def close(self) -> None:
        """End the session; the JVM ends with the process."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def take_back(gateway: Any) -> None:
    """End what a program has left behind, and have the JVM call this process's Python again."""
    from py4j.java_gateway import JavaObject

    left = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    if left.isDefined():
        left.get().stop()
    if gateway.__dict__.get("_callback_server") is not None:
        server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        address = server.getCallbackClient().getAddress()
        server.resetCallbackClient(address, gateway._python_proxy_port)
