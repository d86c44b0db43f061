"""Kafka's names of scripts and classes are taken for the commands that do the same."""

import pytest

from ottla.cli.command import COMMANDS
from ottla.cli.kafka_scripts import CLASSES, SCRIPTS, offered_scripts, without_script_name


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["kafka-topics.sh", "--list"], ["topics", "--list"]),
        (["kafka-server-start.sh", "server.properties"], ["broker", "server.properties"]),
        (["kafka-streams-application-reset.sh", "--dry-run"], ["streams", "reset", "--dry-run"]),
        (["kafka-server-stop.sh"], ["broker-stop"]),
        (
            ["run-class", "kafka.tools.GetOffsetShell", "--topic", "t"],
            ["get-offsets", "--topic", "t"],
        ),
        (["kafka-run-class.sh", "GetOffsetShell"], ["get-offsets"]),
        (["run-class", "kafka.tools.NoSuchTool"], ["run-class", "kafka.tools.NoSuchTool"]),
        (["topics", "--list"], ["topics", "--list"]),
        (["trogdor.sh", "a"], ["trogdor.sh", "a"]),
    ],
)
def test_script_or_class_becomes_a_command(given, meant):
    """The options stay as they are; what is not known stays as well."""
    assert without_script_name(given) == meant


def test_every_class_names_a_script():
    """A class without a script could not be found by its name."""
    assert set(CLASSES.values()) <= SCRIPTS.keys()


def test_scripts_without_a_command_are_not_offered():
    """A command that is not built has no script."""
    offered = offered_scripts()

    assert {"kafka-topics.sh", "kafka-run-class.sh", "zookeeper-server-stop.sh"} <= set(offered)
    assert all(SCRIPTS[name][0] in COMMANDS for name in offered)


def test_script_without_options_shows_them_and_fails(ottla, capsys):
    """Kafka's scripts do the same."""
    assert ottla("kafka-topics.sh").status == 1
    assert capsys.readouterr().out.startswith("usage: ottla topics ")


def test_unknown_class_names_those_that_look_like_it(ottla):
    """One line, with what was probably meant."""
    outcome = ottla("run-class", "kafka.tools.GetOffsetShel")

    assert outcome.status == 1
    assert "did you mean GetOffsetShell?" in outcome.err


def test_long_dash_of_a_printed_page_is_an_option(ottla):
    """A page sets two dashes as a long one: `—list` is `--list`."""
    outcome = ottla("topics", "\u2014list", "--no-such-option")

    assert outcome.err.startswith("ottla topics: unrecognized arguments: --no-such-option")
