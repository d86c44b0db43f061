"""Source and sink of Spark log in: the settings reach the executors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.testing import InProcessBroker

pytestmark = pytest.mark.spark

MECHANISM, PASSWORD = "SCRAM-SHA-512", "sparks, =secret"
COUNT = 1000


@pytest.fixture(scope="module")
def ports(certificates) -> Iterator[dict[str, int]]:
    """Where a broker listens, by protocol; spark is a user of it."""
    protocols = ("SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT")
    settings = {
        "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in protocols),
        "advertised.host.name": "localhost",
        "ssl.keystore.location": certificates.server,
        "sasl.enabled.mechanisms": MECHANISM,
    }
    with InProcessBroker(**settings) as broker:
        found = {end.listener_name: end.port for end in broker.broker.end_points}
        with ottla.Admin(f"localhost:{found['PLAINTEXT']}") as admin:
            admin.alter_user_scram_credentials([UserScramCredential("spark", MECHANISM, PASSWORD)])
        yield found


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("form", ["librdkafka", "java"])
def test_rows_go_out_and_come_back_after_a_login(spark, ports, certificates, protocol, form):
    """In librdkafka's form of a login and in Java's."""
    login = {
        "librdkafka": {"sasl.username": "spark", "sasl.password": PASSWORD},
        "java": {
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="spark" password="{PASSWORD}";'
        },
    }
    settings = {
        "bootstrap.servers": f"localhost:{ports[protocol]}",
        "security.protocol": protocol,
        "sasl.mechanism": MECHANISM,
        **login[form],
    }
    if protocol == "SASL_SSL":
        settings["ssl.truststore.location"] = certificates.ca
    options = {f"kafka.{name}": value for name, value in settings.items()}
    topic = f"{protocol}-{form}"

    rows = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").mode("append").options(**options, topic=topic).save()
    table = spark.read.format("ottla").options(**options, subscribe=topic).load()
    values = table.selectExpr("CAST(value AS STRING) AS value").collect()

    assert sorted(int(row.value) for row in values) == list(range(COUNT))


def test_wrong_password_fails_the_query(spark, ports):
    """With the words of the broker, and without the password."""
    options = {
        "kafka.bootstrap.servers": f"localhost:{ports['SASL_PLAINTEXT']}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.username": "spark",
        "kafka.sasl.password": "a-wrong-guess",
    }
    with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as raised:
        spark.read.format("ottla").options(**options, subscribe="any").load().collect()
    assert "a-wrong-guess" not in str(raised.value)


def test_password_is_shown_nowhere(spark, ports, tmp_path):
    """Not in plans, nor in the progress and the checkpoint of a stream that reads and writes."""
    options = {
        "kafka.bootstrap.servers": f"localhost:{ports['SASL_PLAINTEXT']}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        f'required username="spark" password="{PASSWORD}";',
    }
    rows = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").mode("append").options(**options, topic="shown").save()
    read = {**options, "subscribe": "shown", "startingOffsets": "earliest"}
    table = spark.read.format("ottla").options(**read).load()
    stream = spark.readStream.format("ottla").options(**read).load()
    checkpoint = tmp_path / "checkpoint"
    query = (
        stream.select("value")
        .writeStream.format("ottla")
        .options(**options, topic="copied", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    plan = table._jdf.queryExecution()
    modes = ("simple", "extended", "formatted", "cost")
    explain = spark._jvm.PythonSQLUtils.explainString
    shown = [*(explain(plan, mode) for mode in modes), plan.optimizedPlan().toJSON(), repr(table)]
    shown += [str(query.recentProgress), str(query.status)]
    kept = [path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()]
    assert sum(each["numInputRows"] for each in query.recentProgress) == COUNT
    assert kept
    assert not any(PASSWORD in text for text in shown)
    assert not any(PASSWORD.encode() in data for data in kept)
