"""`ottla zookeeper` and `ottla zookeeper-shell` as a person uses them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from command_here import run_here
from forked_process import run_forked

from ottla.testing import wait_until

LIMIT_S = 60
ZNODE_STAT = [
    r"cZxid = 0x[0-9a-f]+",
    r"ctime = \w{3} \w{3} \d\d \d\d:\d\d:\d\d \S+ \d{4}",
    r"mZxid = 0x[0-9a-f]+",
    r"mtime = \w{3} \w{3} \d\d \d\d:\d\d:\d\d \S+ \d{4}",
    r"pZxid = 0x[0-9a-f]+",
    r"cversion = \d+",
    r"dataVersion = (\d+)",
    r"aclVersion = 0",
    r"ephemeralOwner = (0x[0-9a-f]+)",
    r"dataLength = (\d+)",
    r"numChildren = \d+",
]


def zookeeper_process(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`ottla zookeeper` as a process, as it has one of its own for the server."""
    return ottla("zookeeper", *words, **environment)


def ottla(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "ottla", *words)
    return run_forked(command, timeout=LIMIT_S, env=os.environ | environment)


@pytest.fixture
def shell(znodes):
    """One command below the test's chroot; it has to succeed. Without words: a conversation."""
    znodes.client.ensure_path(znodes.chroot)

    def say(*words: str, stdin: str = "") -> list[str]:
        done = run_here("zookeeper-shell", znodes.connect, *words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return say


def matches(lines: list[str], patterns: list[str]) -> bool:
    return len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines))


def test_sample_session_of_the_articles(start_broker, znodes, shell):
    """What to look at to see that a cluster is there."""
    broker = start_broker(zookeeper_connect=znodes.connect)
    bootstrap = ("--bootstrap-server", broker.bootstrap_servers)
    created = run_here("topics", *bootstrap, "--create", "--topic", "t1", "--partitions", 2)
    assert created.returncode == 0, created.stderr

    assert shell("ls", "/brokers/ids") == ["[0]"]
    assert shell("ls", "/brokers/topics") == ["[t1]"]
    assert shell("ls", "/brokers/topics/t1/partitions") == ["[0, 1]"]
    (node,) = shell("get", "/brokers/ids/0")
    assert node.startswith('{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoin')
    (state,) = shell("get", "/brokers/topics/t1/partitions/1/state")
    assert state == '{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
    assert shell("get", "/brokers") == ["null"], "a node that is only a place has no data"
    (cluster_id,) = shell("get", "/cluster/id")
    assert re.fullmatch(r'\{"version":"1","id":"[\w-]{22}"\}', cluster_id)
    data, *stat = shell("get", "-s", "/controller_epoch")
    assert data == "1"
    assert matches(stat, ZNODE_STAT)
    assert "/brokers/topics/t1/partitions/0/state" in shell("ls", "-R", "/brokers/topics")


def test_conversation_changes_the_tree(shell):
    """Lines of stdin; a mistake is told on stderr and the conversation goes on."""
    lines = shell(
        stdin="""
            create /x {"a":1}
            create -s /x/n_ "two words"
            create -e /x/e
            get /x
            get /x/n_0000000000
            nonsense
            get /no
            delete /x
            set -s /x hello
            stat /x/e
            ls /x
            getAcl /x
            deleteall /x
            ls /
            quit
            ls /
        """
    )
    welcome, *said = lines
    assert welcome == "Welcome to ZooKeeper!"
    assert said[:5] == [
        "Created /x",
        "Created /x/n_0000000000",
        "Created /x/e",
        '{"a":1}',
        "two words",
    ]
    assert matches(said[5:16], ZNODE_STAT)
    assert "dataVersion = 1" in said[5:16]
    assert matches(said[16:27], ZNODE_STAT)
    assert "ephemeralOwner = 0x0" not in said[16:27]
    assert said[27:] == ["[e, n_0000000000]", "'world,'anyone", ": cdrwa", "[]"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("get", "/no"), "Node does not exist: /no"),
        (("create", "/a", "again"), "Node already exists: /a"),
        (("delete", "/a"), "Node not empty: /a"),
        (("set", "-v", "7", "/a", "x"), "version No is not valid : /a"),
        (("get", "a"), 'Path must start with / character: "a"'),
        (("frobnicate",), "Command not found: frobnicate"),
        (("get",), "the following arguments are required: path"),
    ],
)
def test_refused_command_is_one_line(znodes, words, line):
    """With the words of ZooKeeper's own shell, and a status that scripts see."""
    znodes.client.ensure_path(znodes.chroot + "/a/b")
    done = run_here("zookeeper-shell", znodes.connect, *words)

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[1].startswith(f"ottla zookeeper-shell: {line}")


def test_four_letter_words_are_answered(zookeeper):
    """Those that monitoring asks."""
    said = {
        word: run_here("zookeeper-shell", zookeeper.connect, word).stdout
        for word in ("ruok", "stat", "srvr", "mntr", "conf")
    }

    assert said["ruok"] == "imok\n"
    assert "Clients:" in said["stat"]
    assert "Mode: standalone" in said["srvr"]
    assert "zk_znode_count\t" in said["mntr"]
    assert f"clientPort={zookeeper.port}" in said["conf"]


def test_version_names_shell_and_server(zookeeper):
    """Both matter to whoever asks; the shell is a process here, as its users start it."""
    ours, theirs = ottla("zookeeper-shell", zookeeper.connect, "version").stdout.splitlines()

    assert ours.startswith("Ottla ")
    assert theirs.startswith("Zookeeper version: 3.")


def test_server_that_is_not_there_is_one_line():
    """The address and the reason."""
    done = run_here("zookeeper-shell", "127.0.0.1:1", "ls", "/")

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "ottla zookeeper-shell: cannot connect to ZooKeeper at 127.0.0.1:1 (Connection refused)"
    ]


@pytest.mark.wide
def test_data_is_there_after_a_restart(start_zookeeper):
    """Data survive kill -9 as well: every write is on disk before it is acknowledged."""
    process = start_zookeeper()
    for stop in (process.stop, process.kill):
        path = f"/{stop.__name__}"
        assert run_here("zookeeper-shell", process.connect, "create", path).returncode == 0
        stop()
        process.start()
        assert run_here("zookeeper-shell", process.connect, "get", path).returncode == 0
    assert process.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_server_ends_in_order(start_zookeeper, number):
    """Ctrl-C and SIGTERM: status 0, and no process is left."""
    process = start_zookeeper()

    assert process.stop(number) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process.server_pid, 0)


def test_server_does_not_outlive_its_watcher(start_zookeeper):
    """kill -9 of `ottla zookeeper` takes the server along."""
    process = start_zookeeper()
    process.process.kill()

    def is_gone() -> bool:
        return run_here("zookeeper-shell", process.connect, "ruok").returncode == 1

    wait_until(is_gone, "it is gone")


def test_taken_port_is_one_line(zookeeper, tmp_path):
    """The address is named, and Java is not even started."""
    settings = (
        f"clientPort={zookeeper.port}",
        f"dataDir={tmp_path}",
        "clientPortAddress=127.0.0.1",
    )
    words = [word for pair in settings for word in ("--override", pair)]
    done = zookeeper_process(*words)

    assert done.returncode == 1
    assert done.stderr == (
        f"ottla zookeeper: cannot listen on 127.0.0.1:{zookeeper.port}: Address already in use\n"
    )


def test_missing_java_is_one_line_that_says_what_to_install(tmp_path):
    """The package of Debian is named."""
    done = zookeeper_process(PATH=str(tmp_path), JAVA_HOME="")

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("ottla zookeeper: Java is missing")
    assert "openjdk-17-jre-headless" in line


def test_bad_setting_ends_the_server_with_its_reason(tmp_path):
    """What ZooKeeper itself refuses is in its log, above our line."""
    done = zookeeper_process(
        *("--override", f"dataDir={tmp_path}", "--override", "clientPort=0"),
        *("--override", "tickTime=never"),
    )

    assert done.returncode == 1
    assert "never" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ottla zookeeper: ZooKeeper did not start")
