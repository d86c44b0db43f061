"""`ottla broker`, up to the moment when the broker starts."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from ottla.cli.broker import raise_open_files_limit
from ottla.config.broker_config import BrokerConfig


@pytest.fixture
def started(monkeypatch):
    """The settings with which brokers were started; none is started for real."""
    configs: list[BrokerConfig] = []
    monkeypatch.setattr(
        "ottla.cli.broker.run_broker", lambda config, on_ready=None: configs.append(config) or 0
    )
    return configs


@pytest.fixture
def properties(tmp_path):
    """A property file as Kafka's quick start has it."""
    path = tmp_path / "server-1.properties"
    path.write_text("broker.id=1\nlisteners=PLAINTEXT://:9093\nlog.dirs=/tmp/kafka-logs-1\n")
    return path


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_broken_or_full_disk_at_the_start_is_named(ottla, monkeypatch, number):
    """The system's error about an open file has no name of its own."""

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("ottla.cli.broker.run_broker", fail)
    ended = ottla("broker", "--override", "log.dirs=/tmp/a,/tmp/b")
    line = f"ottla broker: log.dirs=/tmp/a,/tmp/b: {os.strerror(number)}"
    assert ended.err.splitlines()[-1] == line


@pytest.mark.parametrize("option", [(), ("--config",)])
def test_property_file_stands_alone_or_behind_config(ottla, started, properties, option):
    """Both spellings start the same broker."""
    assert ottla("broker", *option, properties).status == 0
    assert started[0].broker_id == 1
    assert started[0].text_of("log.dirs") == "/tmp/kafka-logs-1"


def test_broker_without_a_file_has_a_directory_of_its_own(ottla, started):
    """Tried out, it must not meet what Apache Kafka keeps in its default directory."""
    assert ottla("broker").status == 0
    assert started[0].log_dirs == ("/tmp/ottla-logs",)


@pytest.mark.parametrize("adopts", [True, False])
def test_partitions_are_adopted_where_the_option_says_so(ottla, started, adopts):
    """For this start alone; in the property file there is nothing of it."""
    assert ottla("broker", *(["--adopt-log-dirs"] if adopts else [])).status == 0
    assert started[0].ottla_adopt_log_dirs is adopts


def test_override_wins_over_the_file(ottla, started, properties):
    """The last word is the command line's."""
    words = ("--override", "broker.id=2", "--override", "log.retention.hours=1")

    assert ottla("broker", properties, *words).status == 0
    assert started[0].broker_id == 2
    assert started[0].is_given("log.retention.hours")


def test_settings_are_logged_and_secrets_are_not(ottla, started, properties):
    """The log says what was set, so that it can be seen later what a broker ran with."""
    chain = ("--override", "listener.name.ssl.ssl.keystore.certificate.chain=open")
    key = ("--override", "listener.name.ssl.ssl.keystore.key=abc")
    password = ("--override", "ssl.key.password=abc")
    err = ottla("broker", properties, *chain, *key, *password).err

    assert "INFO Property broker.id is overridden to 1 " in err
    assert "INFO Property ssl.key.password is overridden to [hidden] " in err
    assert "INFO Property listener.name.ssl.ssl.keystore.key is overridden to [hidden] " in err
    assert "abc" not in err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--override", "broker.id=x"), "broker.id=x"),
        (("--override", "broker.id"), "--override takes key=value, not 'broker.id'"),
        (("/no/such.file",), "cannot read the property file /no/such.file: No such file"),
        (("a", "--config", "b"), "given twice"),
    ],
)
def test_wrong_setting_is_one_line_and_status_1(ottla, started, words, line):
    """No broker is started, and the reason is on the last line."""
    outcome = ottla("broker", *words)

    assert outcome.status == 1
    assert line in outcome.err.splitlines()[-1]
    assert not started


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("zookeeper.conect=localhost:2181", "did you mean zookeeper.connect?"),
        ("authorizer.class.name=com.example.Own", "must be one of"),
        ("sasl.enabled.mechanisms=PLAIN", "no listener uses SASL"),
        ("process.roles=broker", "KRaft mode"),
    ],
)
def test_file_that_would_not_be_honoured_starts_no_broker(
    ottla, started, properties, setting, said
):
    """One line on the terminal says the key, the value and the rule."""
    properties.write_text(properties.read_text() + setting + "\n")
    ended = ottla("broker", properties)

    assert ended.status == 1
    assert f"{setting}: " in ended.err
    assert said in ended.err
    assert not started


@pytest.fixture
def limits(monkeypatch):
    """The limit of open files as the system would keep it: soft 1,024, hard 4,096."""
    kept = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: kept[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: kept.append(pair))
    return kept


def test_broker_takes_as_many_descriptors_as_it_may(ottla, started, limits):
    """Each segment and each connection holds one, and 1,024 are few."""
    assert ottla("broker").status == 0
    assert limits[-1] == (4096, 4096)


def test_limit_that_cannot_be_raised_is_a_warning(limits, monkeypatch, caplog):
    """macOS refuses what its own hard limit allows; the broker starts all the same."""

    def refuse(kind, pair):
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)

    with caplog.at_level("WARNING", logger="ottla.cli.broker"):
        raise_open_files_limit()

    assert "at most 1024 open files" in caplog.text


def test_broker_imports_nothing_that_it_does_not_need():
    """Each import is paid for at every start; kazoo's only where ZooKeeper is asked for."""
    code = (
        "import sys, ottla.server.broker; print(*{m.split('.')[0] for m in sys.modules},"
        " *(m for m in sys.modules if m.startswith(('ottla', 'importlib'))))"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    unneeded = {
        "crc32c",  # its head reads the metadata of all packages
        "email",
        "importlib.metadata",
        "kazoo",
        "numpy",
        "ottla.record.columns",
        "ottla.record.rows",
        "ottla.registry.zookeeper",
        "ottla.runtime.portable_pollers",
        "ottla.extensions.rights.access_checks",
        "pandas",
        "pyarrow",
        "pyspark",
    }

    assert not unneeded.intersection(shown)
    assert "ottla.server.broker" in shown
