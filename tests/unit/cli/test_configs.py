"""`ottla configs`."""

import json

import pytest

from ottla.cli.configs import Entity, completed, in_words, parse_added
from ottla.clients.admin.descriptions import ConfigEntry, ConfigResource, ConfigSynonym
from ottla.protocol.configs import (
    ConfigResourceType,
)
from ottla.structs import ClientEntity, ConfigSource

DYNAMIC = ConfigSource.DYNAMIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG


@pytest.fixture
def cluster(admin):
    """A topic with a setting of its own, a broker with one, and a default of all brokers."""
    admin.add_topic("t", retention_ms="5", cleanup_policy="compact,delete")
    threads = ConfigEntry(
        "log.cleaner.threads",
        "2",
        source=DYNAMIC,
        synonyms=[
            ConfigSynonym("log.cleaner.threads", "2", DYNAMIC),
            ConfigSynonym("log.cleaner.threads", "1", DEFAULT),
        ],
    )
    password = ConfigEntry("ssl.key.password", None, is_sensitive=True, source=DYNAMIC)
    fixed = ConfigEntry("log.dirs", "/tmp", is_default=True, source=DEFAULT)
    admin.settings["broker", "0"] = [threads, password, fixed]
    admin.settings["broker", ""] = [
        ConfigEntry("num.io.threads", "9", source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]
    return admin


def test_settings_of_a_topic_are_one_line(tool, cluster):
    """The line has only the settings that were made for the topic."""
    for words in (("--topic", "t"), ("--entity-type", "topics", "--entity-name", "t")):
        assert tool("configs", "--describe", *words).out == (
            "Configs for topic 't' are retention.ms=5,cleanup.policy=compact,delete\n"
        )


def test_every_topic_is_described_where_none_is_named(tool, cluster):
    """In the order of their names."""
    cluster.add_topic("a")

    assert tool("configs", "--describe", "--entity-type", "topics").lines[0] == (
        "Configs for topic 'a' are "
    )


def test_settings_of_a_broker_stand_below_each_other(tool, cluster):
    """Each value has its source; secrets are not shown."""
    assert tool("configs", "--describe", "--broker", "0").lines == [
        "Configs for broker 0 are:",
        "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
        "log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1}",
        "  ssl.key.password=null sensitive=true synonyms={}",
    ]


def test_default_of_brokers_has_its_own_heading(tool, cluster):
    """Both spellings mean it."""
    for words in (("--broker-defaults",), ("--entity-type", "brokers", "--entity-default")):
        assert tool("configs", "--describe", *words).lines == [
            "Default config for brokers in the cluster are:",
            "  num.io.threads=9 sensitive=false synonyms={}",
        ]


def test_all_shows_defaults_too(tool, cluster):
    """Every setting in force."""
    lines = tool("configs", "--describe", "--broker", "0", "--all").lines

    assert lines[0] == "All configs for broker 0 are:"
    assert "  log.dirs=/tmp sensitive=false synonyms={}" in lines


def test_alter_of_a_topic_is_confirmed(tool, cluster):
    """Settings are made and taken back in one request."""
    words = ("--add-config", "segment.ms=7", "--delete-config", "retention.ms, cleanup.policy")

    outcome = tool("configs", "--alter", "--topic", "t", *words)

    assert outcome.out == "Completed Updating config for entity: topic 't'.\n"
    assert cluster.changes == [
        (
            "TOPIC",
            "t",
            ("segment.ms", "7", "SET"),
            ("retention.ms", None, "DELETE"),
            ("cleanup.policy", None, "DELETE"),
        )
    ]


@pytest.mark.parametrize(
    ("words", "name", "line"),
    [
        (("--broker", "0"), "0", "Completed updating config for broker: 0."),
        (
            ("--broker-defaults",),
            "",
            "Completed updating default config for brokers in the cluster,",
        ),
    ],
)
def test_alter_of_brokers_is_confirmed(tool, cluster, words, name, line):
    """One broker, or the default of all."""
    assert tool("configs", "--alter", *words, "--add-config", "a=b").lines == [line]
    assert cluster.changes == [("BROKER", name, ("a", "b", "SET"))]


def test_settings_can_come_from_a_file(tool, cluster, tmp_path):
    """--add-config wins over the file."""
    path = tmp_path / "add.properties"
    path.write_text("a=1\nb=2\n")

    words = ("--add-config-file", path, "--add-config", "b=3")
    tool("configs", "--alter", "--topic", "t", *words)

    assert cluster.changes == [("TOPIC", "t", ("a", "1", "SET"), ("b", "3", "SET"))]


def test_only_settings_that_were_made_can_be_taken_back(tool, cluster):
    """A typing mistake does not pass in silence."""
    outcome = tool("configs", "--alter", "--topic", "t", "--delete-config", "retention.msx")

    assert outcome.status == 1
    assert "Invalid config(s): retention.msx" in outcome.err
    assert not cluster.changes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a=b,c=d", {"a": "b", "c": "d"}),
        ("a=[b,c],d=e", {"a": "b,c", "d": "e"}),
        ("a = [ b,c ] , d=", {"a": "b,c", "d": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("", {}),
    ],
)
def test_brackets_group_values_with_commas(text, expected):
    """The brackets themselves are not part of the value."""
    assert parse_added(text) == expected


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--describe",),
        ("--describe", "--alter", "--topic", "t"),
        ("--describe", "--topic", "t", "--broker", "0"),
        ("--describe", "--topic", "t", "--entity-type", "topics"),
        ("--describe", "--topic", "t", "--add-config", "a=b"),
        ("--describe", "--entity-type", "tables"),
        ("--describe", "--entity-type", "topics", "--entity-default"),
        ("--describe", "--broker", "zero"),
        ("--alter", "--topic", "t"),
        ("--alter", "--topic", "t", "--add-config", "a"),
        ("--alter", "--topic", "t", "--add-config", "a=b", "--all"),
        ("--alter", "--entity-type", "topics", "--add-config", "a=b"),
    ],
)
def test_options_that_do_not_fit_are_one_line(tool, cluster, words):
    """Nothing is changed, and the help is pointed to."""
    outcome = tool("configs", *words)

    assert outcome.status == 1
    assert "(see 'ottla configs --help')" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not cluster.changes


def test_loggers_are_those_of_one_broker(tool, cluster):
    """Loggers without the id of their broker are refused."""
    outcome = tool("configs", "--describe", "--entity-type", "broker-loggers")

    assert outcome.status == 1
    assert "--entity-name is needed" in outcome.err


def test_loggers_are_asked_of_the_broker_as_a_resource_of_their_own():
    """It is no broker, whose settings have the same id."""
    resource = Entity("broker-loggers", "0").resource()

    assert resource == ConfigResource(ConfigResourceType.BROKER_LOGGER, "0")
    assert completed(Entity("broker-loggers", "0"), as_by_zookeeper=False) == (
        "Completed updating config for broker-logger: 0."
    )


def test_settings_of_a_group_are_shown_and_changed(tool, cluster):
    """Both spellings mean it; only those made for the group are shown."""
    source = ConfigSource.DYNAMIC_GROUP_CONFIG
    cluster.settings["group", "g"] = [
        ConfigEntry("consumer.session.timeout.ms", "50000", source=source),
        ConfigEntry("consumer.heartbeat.interval.ms", "5000", source=DEFAULT),
    ]
    for words in (("--group", "g"), ("--entity-type", "groups", "--entity-name", "g")):
        assert tool("configs", "--describe", *words).lines == [
            "Dynamic configs for group g are:",
            "  consumer.session.timeout.ms=50000 sensitive=false synonyms={}",
        ]
        outcome = tool("configs", "--alter", *words, "--add-config", "a=b")
        assert outcome.lines == ["Completed updating config for group g."]
        assert cluster.changes.pop() == ("GROUP", "g", ("a", "b", "SET"))


def test_subscriptions_to_metrics_are_shown_and_changed(tool, cluster):
    """All of them, or one by either spelling."""
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    cluster.settings["client_metrics", "app"] = [
        ConfigEntry("interval.ms", "500", source=source),
        ConfigEntry("metrics", "", source=DEFAULT),
    ]
    kind = ("--entity-type", "client-metrics")
    for words in (kind, (*kind, "--entity-name", "app"), ("--client-metrics", "app")):
        assert tool("configs", "--describe", *words).lines == [
            "Dynamic configs for client-metric app are:",
            "  interval.ms=500 sensitive=false synonyms={}",
        ]
    words = ("--client-metrics", "app", "--add-config", "interval.ms=100,match=[client_id=a]")
    outcome = tool("configs", "--alter", *words)
    assert outcome.lines == ["Completed updating config for client-metric app."]
    changes = (("interval.ms", "100", "SET"), ("match", "client_id=a", "SET"))
    assert cluster.changes.pop() == ("CLIENT_METRICS", "app", *changes)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("delete.retention.ms", "86400000", "1 day"),
        ("retry.backoff.ms", "1000", "1 s"),
        ("flush.ms", "9223372036854775807", "never"),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("max.message.bytes", "1048588", None),
        ("flush.messages", "9223372036854775807", None),
        ("cleanup.policy", "delete", None),
    ],
)
def test_settings_are_told_in_words(name, value, words):
    """Where a number stands for a time or a size, and a word says it exactly."""
    assert in_words(name, value) == words


def test_settings_can_be_described_as_a_table(tool, cluster):
    """One row each: value, value in words, source, and what the setting does."""
    documented = cluster.settings["topic", "t"]
    documented[1] = documented[1]._replace(documentation="How long <code>records</code> stay.")
    outcome = tool("configs", "--describe", "--topic", "t", "--format", "table")

    source = ("dynamic", "topic", "config", "no")
    assert [line.split() for line in outcome.lines[1:]] == [
        ["t", "retention.ms", "5", "-", *source, "How", "long", "records", "stay."],
        ["t", "cleanup.policy", "compact,delete", "-", *source, "-"],
    ]


def test_broker_without_settings_of_its_own_points_to_all(tool, cluster):
    """A person sees where those are that are in force."""
    cluster.settings["broker", "0"] = []

    outcome = tool("configs", "--describe", "--broker", "0", tty=True)

    assert outcome.err == "no settings of its own; --all shows those in force\n"


@pytest.fixture
def limited(admin):
    """A quota of each kind that Kafka's tool names in words of its own."""
    admin.quotas = {
        ClientEntity("alice", "app"): {"consumer_byte_rate": 2048.0, "producer_byte_rate": 1024.0},
        ClientEntity("alice"): {"request_percentage": 200.0},
        ClientEntity(""): {"producer_byte_rate": 2e7},
        ClientEntity("", "app"): {"controller_mutation_rate": 2.5},
        ClientEntity(client_id=""): {"producer_byte_rate": 1.0},
        ClientEntity(ip="127.0.0.9"): {"connection_creation_rate": 5.0},
        ClientEntity(ip=""): {"connection_creation_rate": 9.0},
    }
    return admin


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            "--entity-type users --entity-name alice --entity-type clients --entity-name app",
            [
                "Quota configs for user-principal 'alice', client-id 'app' are "
                "consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
            ],
        ),
        (
            "--entity-type clients --entity-name app --entity-type users --entity-default",
            [
                "Quota configs for the default user-principal, client-id 'app' are "
                "controller_mutation_rate=2.5"
            ],
        ),
        (
            "--entity-type users",
            [
                "Quota configs for user-principal 'alice' are request_percentage=200.0",
                "Quota configs for the default user-principal are producer_byte_rate=2.0E7",
            ],
        ),
        ("--user alice", ["Quota configs for user-principal 'alice' are request_percentage=200.0"]),
        (
            "--client-defaults",
            ["Quota configs for the default client-id are producer_byte_rate=1.0"],
        ),
        ("--ip 127.0.0.9", ["Quota configs for ip '127.0.0.9' are connection_creation_rate=5.0"]),
        ("--ip-defaults", ["Quota configs for the default ip are connection_creation_rate=9.0"]),
        ("--user bob", []),
    ],
)
def test_quotas_are_described_as_kafkas_tool_does(tool, limited, words, lines):
    """The entities with exactly these components."""
    assert tool("configs", "--describe", *words.split()).lines == lines


def test_quotas_can_be_read_by_programs(tool, limited):
    """A row for each limit."""
    outcome = tool("configs", "--describe", "--client-defaults", "--format", "json")
    assert json.loads(outcome.out) == [
        {"client-id": "<default>", "quota": "producer_byte_rate", "value": 1.0}
    ]


@pytest.mark.parametrize(
    ("words", "entity", "said"),
    [
        ("--user alice", ClientEntity("alice"), "config for user alice."),
        ("--client app", ClientEntity(client_id="app"), "config for client app."),
        ("--ip 1.2.3.4", ClientEntity(ip="1.2.3.4"), "config for ip 1.2.3.4."),
        ("--user-defaults", ClientEntity(""), "default config for users in the cluster."),
        ("--user alice --client app", ClientEntity("alice", "app"), "config for user alice."),
        ("--user-defaults --client app", ClientEntity("", "app"), "config for client app."),
    ],
)
def test_quotas_are_changed_as_kafkas_tool_does(tool, limited, words, entity, said):
    """Some are set, some removed."""
    key = "connection_creation_rate" if entity.ip else "request_percentage"
    outcome = tool("configs", "--alter", *words.split(), "--add-config", f"{key}=50")
    assert outcome.out == f"Completed updating {said}\n"
    assert limited.changes == [("alter_client_quotas", {entity: {key: 50.0}})]


def test_limits_are_removed_if_they_are_there(tool, limited):
    """A typing mistake must not pass in silence."""
    words = ("configs", "--alter", "--user", "alice", "--delete-config")
    assert tool(*words, "producer_byte_rate").err == (
        "ottla configs: Invalid config(s): producer_byte_rate\n"
    )
    assert tool(*words, "request_percentage").status == 0
    change = {ClientEntity("alice"): {"request_percentage": None}}
    assert limited.changes == [("alter_client_quotas", change)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--user a --add-config bogus=1", "for 'users'. Unexpected config names: Set(bogus)"),
        ("--ip 1.2.3.4 --add-config producer_byte_rate=1", "can be added for 'ips'. Unexpected"),
        ("--client a --add-config producer_byte_rate=0", "producer_byte_rate=0: must be greater"),
        ("--entity-type users --add-config producer_byte_rate=1", "needs --entity-name or"),
        ("--user a --user-defaults --add-config producer_byte_rate=1", "given twice"),
        ("--user a --ip 1.2.3.4 --add-config producer_byte_rate=1", "may stand together"),
        ("--user a --topic t --add-config producer_byte_rate=1", "may stand together"),
        ("--entity-name a --add-config producer_byte_rate=1", "needs an --entity-type"),
    ],
)
def test_quotas_that_make_no_sense_are_refused(tool, limited, words, said):
    """Before a broker is asked."""
    outcome = tool("configs", "--alter", *words.split())
    assert outcome.status != 0
    assert said in outcome.err
    assert limited.changes == []


@pytest.mark.parametrize("words", [("--describe",), ("--alter", "--add-config", "a=1")])
@pytest.mark.parametrize("kind", ["--broker", "--broker-logger"])
def test_broker_that_is_not_there_is_refused_at_once(tool, admin, kind, words):
    """Nobody else knows its settings, and to wait for it would take a minute."""
    outcome = tool("configs", *words, kind, "7")

    assert outcome.status == 1
    assert "there are no brokers 7" in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        ("--user", ""),
        ("--client", ""),
        ("--ip", ""),
        ("--broker", ""),
        ("--entity-type", "users", "--entity-name", ""),
        ("--entity-type", "brokers", "--entity-name", ""),
    ],
)
def test_empty_name_is_not_the_default_of_all(tool, admin, words):
    """A script whose variable is not set gives one: it would change the quotas of everybody."""
    outcome = tool("configs", "--alter", *words, "--add-config", "producer_byte_rate=1")

    assert outcome.status == 1
    assert f"{words[-2]} needs a name, not ''" in outcome.err
