"""Source and sink of Spark over TLS: the settings reach the executors."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_rows_go_out_and_come_back_over_tls(spark, start_broker, certificates):
    """The sink is told of a file, the source of its text; there is no other listener."""
    broker = start_broker(**certificates.listener)
    secure = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": certificates.ca,
    }
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").mode("append").options(**secure, topic="t").save()
    inline = dict(secure)
    del inline["kafka.ssl.truststore.location"]
    inline["kafka.ssl.truststore.certificates"] = Path(certificates.ca).read_text()
    table = spark.read.format("ottla").options(**inline, subscribe="t").load()
    values = table.selectExpr("CAST(value AS STRING) AS value").collect()
    assert sorted(int(row.value) for row in values) == list(range(1000))
