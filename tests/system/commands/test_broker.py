"""`ottla broker` from its property file to its end, and tools without a broker."""

import json
import re
import signal
import socket
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIMIT_S = 120
AN_HOUR_MS = 3_600_000


def test_broker_runs_with_the_shipped_settings(start, tmp_path):
    """The file is in the command line, each setting in the log, and no warning."""
    listener = ("--override", "listeners=PLAINTEXT://127.0.0.1:0")
    data = ("--override", f"log.dirs={tmp_path}")
    process = start("broker", ROOT / "config" / "server.properties", *listener, *data)

    ready = process.stdout.readline()
    words = Path(f"/proc/{process.pid}/cmdline").read_text()
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=LIMIT_S)

    assert "ready" in ready
    assert "config/server.properties" in words
    assert process.returncode == 0
    assert "INFO Property group.initial.rebalance.delay.ms is overridden to 0 " in log
    warnings = [line for line in log.splitlines() if "WARN" in line]
    # What the machine that the tests run on lacks is not about the shipped file.
    assert not [line for line in warnings if "(ottla doctor says why" not in line]


def test_second_broker_runs_beside_the_first(start, run, broker, tmp_path):
    """A property file with an id, a listener and a directory of its own."""
    path = tmp_path / "server-1.properties"
    path.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/kafka-logs-1\n"
    )
    process = start("broker", path)

    address = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
    assert address is not None
    shown = run("broker-api-versions", "--bootstrap-server", address[0]).stdout

    assert shown.startswith(f"{address[0]} (id: 1 rack: null) -> (")


def test_directory_of_kafka_needs_a_word_of_the_user(run_process, start, tmp_path):
    """Refused, it is untouched; with --adopt-log-dirs the broker starts on it."""
    log_dir = tmp_path / "kafka"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=3\ncluster.id=abc\n")
    before = sorted(log_dir.rglob("*"))
    settings = ("--override", f"log.dirs={log_dir}", "--override", "listeners=PLAINTEXT://:0")
    refused = run_process("broker", *settings)

    assert refused.returncode == 1
    assert re.search(rf"log\.dirs={log_dir}: .*1 partition.*--adopt-log-dirs", refused.stderr)
    assert sorted(log_dir.rglob("*")) == before
    assert "broker 3 is ready" in start("broker", "--adopt-log-dirs", *settings).stdout.readline()


def test_broker_with_a_wrong_setting_is_one_line(run_process):
    """The setting, the value and the rule."""
    done = run_process("broker", "--override", "num.partitions=0")

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"ottla broker: num\.partitions=0: must .*\n", done.stderr)


def test_broker_whose_port_is_taken_is_one_line(run_process, tmp_path):
    """The address is named, and the status is 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listener = ("--override", f"listeners=PLAINTEXT://127.0.0.1:{port}")
        done = run_process("broker", *listener, "--override", f"log.dirs={tmp_path}")

    assert done.returncode == 1
    assert str(port) in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "--list", "--command-config"),
        ("console-producer", "--topic", "t", "--producer.config"),
        ("console-consumer", "--topic", "t", "--consumer.config"),
        ("consumer-groups", "--list", "--command-config"),
        ("get-offsets", "--topic", "t", "--command-config"),
    ],
)
def test_nobody_listening_is_one_line_at_once(run, tmp_path, words):
    """The address and the reason, long before any timeout."""
    path = tmp_path / "client.properties"
    names = ("default.api.timeout.ms", "request.timeout.ms", "max.block.ms", "delivery.timeout.ms")
    path.write_text("".join(f"{name}={AN_HOUR_MS}\n" for name in names))
    with socket.socket() as taken:  # so that nobody else comes to listen there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(*words, path, "--bootstrap-server", address)

    assert done.returncode == 1
    assert done.stderr == (
        f"ottla {words[0]}: cannot connect to a broker at {address} (Connection refused)\n"
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("broker-api-versions",), "Fetch"),
        (("delete-records", "--offset-json-file", "{plan}"), "low_watermark: 0"),
        (("dump-log", "--files", "{log}"), "Starting offset: 0"),
        (("get-offsets", "--topic", "{topic}"), "{topic}:0:1"),
        (("log-dirs", "--describe"), '"isFuture":false'),
        (("tail", "{topic}"), "once"),
        (("transactions", "list"), "TransactionalId"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_tool_runs_as_a_process(run_process, ottla, broker, narrow, tmp_path, words, shown):
    """The others of these tests run in one process; Kafka's tools are processes in the archive."""
    ottla("console-producer", "--topic", narrow, stdin="once\n")
    plan = tmp_path / "plan.json"
    row = {"topic": narrow, "partition": 0, "offset": 0}
    plan.write_text(json.dumps({"partitions": [row]}))
    names = {"plan": plan, "topic": narrow, "log": broker.data_dir / f"{narrow}-0/{0:020d}.log"}
    server = () if words[0] == "dump-log" else ("--bootstrap-server", broker.bootstrap_servers)

    done = run_process(*(word.format(**names) for word in words), *server)

    assert (done.returncode, done.stderr) == (0, "")
    assert shown.replace("{topic}", narrow) in done.stdout


def test_server_that_is_no_broker_is_one_line_in_time(run, tmp_path):
    """A listener that never answers ends the tool by its time limit."""
    path = tmp_path / "client.properties"
    path.write_text("default.api.timeout.ms=1500\nrequest.timeout.ms=1000\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = ("--bootstrap-server", address, "--command-config", path)
        done = run("topics", "--list", *words)

    assert done.returncode == 1
    assert done.stderr.startswith("ottla topics: ")
    assert done.stderr.count("\n") == 1


def test_port_of_another_server_is_told_apart_at_once(run):
    """A web server was waited for until the time was over, without a word."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        server.RequestHandlerClass.log_message = lambda *_: None
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"127.0.0.1:{server.server_port}"
            done = run("topics", "--list", "-b", address)
        finally:
            server.shutdown()
            thread.join()

    assert done.returncode == 1
    assert f"{address} does not speak Kafka's protocol" in done.stderr


def test_shell_shows_the_registry_of_a_broker_without_zookeeper(run, start, tmp_path):
    """The sample session of a first look at a cluster, and nothing of a broker that died."""
    settings = ("--override", f"log.dirs={tmp_path}", "--override", "broker.id=7")
    process = start("broker", *settings, "--override", "listeners=PLAINTEXT://127.0.0.1:0")
    assert "is ready" in process.stdout.readline()

    def shell(*words):
        return run("zookeeper-shell", tmp_path, *words)

    assert shell("ls", "/brokers/ids").stdout == "[7]\n"
    assert '"endpoints":["PLAINTEXT://127.0.0.1:' in shell("get", "/brokers/ids/7").stdout
    assert '"brokerid":7' in shell("get", "/controller").stdout
    refused = shell("create", "/mine", "data")
    assert refused.returncode == 1
    assert "its broker alone writes these files" in refused.stderr
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert shell("ls", "/brokers/ids").stdout == "[]\n"


def test_shell_says_that_a_directory_has_no_registry(run, tmp_path):
    """The directory, and which one it must be."""
    done = run("zookeeper-shell", tmp_path, "ls", "/")

    assert done.returncode == 1
    assert f"{tmp_path} has no embedded registry: it must be the data directory" in done.stderr
