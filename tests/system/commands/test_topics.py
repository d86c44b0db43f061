"""Topics: the first steps of the quickstart, and copies."""

import json


def test_quickstart_of_a_topic(ottla, unique):
    """Create, list, describe, with the lines of Kafka 2.3."""
    name = unique("test")
    words = ("--replication-factor", 1, "--partitions", 1, "--topic", name)

    assert ottla("topics", "--create", *words).stdout == f"Created topic {name}.\n"
    assert name in ottla("topics", "--list").stdout.splitlines()
    assert ottla("topics", "--describe", "--topic", name).stdout == (
        f"Topic:{name}\tPartitionCount:1\tReplicationFactor:1\tConfigs:\n"
        f"\tTopic: {name}\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\n"
    )


def test_topic_is_altered_and_deleted(ottla, topic):
    """More partitions, then none."""
    ottla("topics", "--alter", "--topic", topic, "--partitions", 5)
    described = ottla("topics", "--describe", "--topic", topic).stdout
    deleted = ottla("topics", "--delete", "--topic", topic)

    assert deleted.stdout == f"Deleted topic {topic}.\n"
    assert "PartitionCount:5" in described
    assert topic not in ottla("topics", "--list").stdout.splitlines()


def test_replicas_can_be_placed(ottla, unique):
    """An assignment stands for both counts."""
    name = unique("placed")

    ottla("topics", "--create", "--topic", name, "--replica-assignment", "0,0")

    described = ottla("topics", "--describe", "--topic", name).stdout
    assert "PartitionCount:2\tReplicationFactor:1" in described


def test_settings_of_a_topic_are_described(ottla, unique):
    """Those that it was created with."""
    name = unique("set")

    ottla("topics", "--create", "--topic", name, "--config", "retention.ms=60000")

    words = ("--describe", "--topics-with-overrides", "--topic", name)
    assert ottla("topics", *words).stdout == (
        f"Topic:{name}\tPartitionCount:1\tReplicationFactor:1\tConfigs:retention.ms=60000\n"
    )


def test_topic_that_is_there_and_one_that_is_not(ottla, fails, topic):
    """Each is one line, unless the option says that it is fine."""
    assert "TOPIC_ALREADY_EXISTS" in fails("topics", "--create", "--topic", topic)
    assert "'none' does not exist" in fails("topics", "--delete", "--topic", "none")
    ottla("topics", "--create", "--topic", topic, "--if-not-exists")
    ottla("topics", "--delete", "--topic", "none", "--if-exists")


def test_more_replicas_than_brokers_are_refused(fails, unique):
    """The error of the broker is told by its name."""
    words = ("--topic", unique("wide"), "--replication-factor", 3)

    assert "INVALID_REPLICATION_FACTOR" in fails("topics", "--create", *words)


def test_topic_is_copied_by_partition_and_by_json(ottla, topic, unique):
    """--copy keeps partition and time; JSON lines of tail come back through the producer."""
    copy, again = unique("copy"), unique("again")
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    lines = "".join(f'k{n}:{{"n":{n}}}\n' for n in range(20))
    ottla("console-producer", "--topic", topic, *keyed, stdin=lines)

    def records(name, *ignored):
        out = ottla("tail", name, "-n", 100, "--format", "json").stdout
        found = [json.loads(line) for line in out.splitlines()]
        return [
            {key: each[key] for key in each if key not in ("topic", *ignored)} for each in found
        ]

    done = ottla("topics", "--copy", "--topic", topic, "--to", copy)
    json_lines = ottla("tail", topic, "-n", 100, "--format", "json").stdout
    ottla("topics", "--create", "--topic", again, "--partitions", 3)
    ottla("console-producer", "--topic", again, "--format", "json", stdin=json_lines)

    assert done.stdout == f"Copied 20 records of {topic} to {copy}.\n"
    assert len(records(topic)) == 20
    assert records(copy) == records(topic)
    assert records(again, "offset") == records(topic, "offset")
