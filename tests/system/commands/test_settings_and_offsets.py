"""Settings, offsets, records and versions."""

import json
import re


def test_settings_of_a_topic_are_changed(ottla, fails, topic):
    """Made, shown, taken back."""
    alter = ("configs", "--alter", "--entity-type", "topics", "--entity-name", topic)
    describe = ("configs", "--describe", "--topic", topic)

    done = ottla(*alter, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    made = ottla(*describe).stdout
    ottla(*alter, "--delete-config", "cleanup.policy")

    assert done.stdout == f"Completed Updating config for entity: topic '{topic}'.\n"
    assert made == (
        f"Configs for topic '{topic}' are cleanup.policy=compact,delete,retention.ms=60000\n"
    )
    assert ottla(*describe).stdout == f"Configs for topic '{topic}' are retention.ms=60000\n"
    assert "retention.ms" in fails(*alter, "--add-config", "retention.ms=soon")


def test_settings_of_a_broker_are_shown(ottla):
    """Those in force with where they come from."""
    every = ottla("configs", "--describe", "--broker", 0, "--all").stdout

    assert every.startswith("All configs for broker 0 are:\n")
    assert (
        "  num.partitions=1 sensitive=false synonyms={DEFAULT_CONFIG:num.partitions=1}\n" in every
    )


def test_settings_of_brokers_are_changed(start_broker, run):
    """Of one broker, and of all by default."""
    servers = ("--bootstrap-server", start_broker().bootstrap_servers)
    one, every = ("configs", *servers, "--broker", 0), ("configs", *servers, "--broker-defaults")

    changed = [
        run(*one, "--alter", "--add-config", "log.retention.ms=70000"),
        run(*every, "--alter", "--add-config", "log.retention.ms=90000"),
    ]

    assert [done.stdout for done in changed] == [
        "Completed updating config for broker: 0.\n",
        "Completed updating default config for brokers in the cluster,\n",
    ]
    assert run(*one, "--describe").stdout.startswith(
        "Configs for broker 0 are:\n"
        "  log.retention.ms=70000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
        "log.retention.ms=70000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=90000"
    )
    assert run(*every, "--describe").stdout.startswith(
        "Default config for brokers in the cluster are:\n  log.retention.ms=90000 sensitive=false"
    )


def test_records_are_deleted(ottla, narrow, tmp_path):
    """The log begins later, and `get-offsets` shows where."""
    ottla("console-producer", "--topic", narrow, stdin="a\nb\nc\n")
    path = tmp_path / "offsets.json"
    wanted = {"topic": narrow, "partition": 0, "offset": 2}
    path.write_text(json.dumps({"partitions": [wanted], "version": 1}))

    done = ottla("delete-records", "--offset-json-file", path)

    assert done.stdout.splitlines()[-1] == f"partition: {narrow}-0\tlow_watermark: 2"
    offsets = ("get-offsets", "--topic", narrow, "--time")
    assert ottla(*offsets, "earliest").stdout == f"{narrow}:0:2\n"
    assert ottla(*offsets, -1).stdout == f"{narrow}:0:3\n"
    assert ottla(*offsets, 0).stdout == f"{narrow}:0:2\n"


def test_offsets_of_all_partitions_are_shown(ottla, topic):
    """A line has the form `topic:partition:offset`."""
    assert ottla("get-offsets", "--topic", topic).stdout == "".join(
        f"{topic}:{partition}:0\n" for partition in range(3)
    )


NOT_SERVED = (
    "LeaderAndIsr(4)",
    "StopReplica(5)",
    "UpdateMetadata(6)",
    "ControlledShutdown(7)",
    "AlterPartition(56)",
    "GetTelemetrySubscriptions(71)",
    "PushTelemetry(72)",
)
"""What a broker that is alone, and without metrics, does not serve."""


def test_versions_of_the_broker_are_shown(ottla):
    """Every API that the broker serves can be used by Ottla's own clients."""
    lines = ottla("broker-api-versions").stdout.splitlines()

    assert re.fullmatch(r"127\.0\.0\.1:\d+ \(id: 0 rack: null\) -> \(", lines[0])
    assert re.fullmatch(r"\tProduce\(0\): \d+ to \d+ \[usable: \d+\],", lines[1])
    unused = [line.strip() for line in lines[1:-1] if "[usable: " not in line]
    assert unused == [f"{name}: UNSUPPORTED," for name in NOT_SERVED]
