"""The doctor finds each of these faults by itself, and nothing on a healthy host."""

import datetime
import json
import os

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.cli import cluster_checks, host_checks, machine, setting_checks
from ottla.cli.doctor import DoctorCommand
from ottla.cli.machine import Machine, Space
from ottla.clients.admin.descriptions import TopicPartitionInfo
from ottla.clients.admin.log_dirs import LogDirDescription
from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import Node, TopicPartition

NOW_S = 1_800_000_000.0
HEALTHY = {
    "proc/self/limits": "Limit  Soft Limit  Hard Limit\nMax open files  1024  1048576  files\n",
    "proc/self/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sdb1 {data} xfs rw,noatime 0 0\n",
    "proc/sys/net/core/rmem_max": "2097152\n",
    "proc/sys/net/core/wmem_max": "2097152\n",
    "proc/sys/net/core/somaxconn": "4096\n",
    "proc/sys/vm/swappiness": "1\n",
    "proc/sys/vm/dirty_ratio": "60\n",
    "proc/sys/vm/dirty_bytes": "0\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}


class FakeMachine(Machine):
    """A host whose kernel tells what a test has written, and whose disk and names are made up."""

    def __init__(self, root):
        super().__init__(root)
        self.free = Space(0.5, 0.5)
        self.flushes = [1.0] * 100
        self.names = {"broker.example": ["192.0.2.1"], "localhost": ["127.0.0.1"]}
        self.refused = {}

    def write(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def space(self, path):
        return self.free

    def flush_ms(self, folder):
        return self.flushes

    def now_s(self):
        return NOW_S

    def addresses(self, name):
        if name not in self.names:
            raise OSError(-2, "Name or service not known")
        return self.names[name]

    def refusal(self, host, port):
        return self.refused.get(host)


def pem(path, days):
    """A key with its certificate, which ends so many days from now; only its owner reads it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker.example")])
    ends = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC) + datetime.timedelta(days, 60)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ends - datetime.timedelta(3650))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    key_format, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(encoding, key_format, plain) + certificate.public_bytes(encoding)
    )
    path.chmod(0o600)


@pytest.fixture
def data(tmp_path):
    """The log directory, with one log that is an hour old."""
    log = tmp_path / "data" / "t-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.touch()
    os.utime(log, (NOW_S - 3600, NOW_S - 3600))
    return tmp_path / "data"


@pytest.fixture
def host(tmp_path, data):
    """A healthy one."""
    host = FakeMachine(tmp_path / "root")
    for path, text in HEALTHY.items():
        host.write(path, text.format(data=data))
    return host


@pytest.fixture
def properties(tmp_path, data):
    """A property file without a mistake."""
    pem(tmp_path / "broker.pem", 365)
    path = tmp_path / "server.properties"
    path.write_text(
        f"broker.id=1\nlog.dirs={data}\nlisteners=SSL://:9093\n"
        "advertised.listeners=SSL://broker.example:9093\n"
        "ssl.keystore.type=PEM\nssl.client.auth=none\n"
        f"ssl.keystore.location={tmp_path}/broker.pem\nlog.retention.hours=24\n"
    )
    return path


@pytest.fixture
def examine(ottla, monkeypatch, host, properties):
    """Run the doctor; its findings, as JSON, and the outcome."""

    def run(*words):
        monkeypatch.setattr("ottla.cli.main.load_command", lambda name: DoctorCommand(host))
        outcome = ottla("doctor", properties, *words, "--format", "json")
        assert outcome.err == ""
        return json.loads(outcome.out), outcome

    return run


def plant_open_files(host, properties):
    host.write(
        "proc/self/limits", "Max open files            1024                 4096       files\n"
    )


def plant_small_buffers(host, properties):
    host.write("proc/sys/net/core/rmem_max", "65536\n")


def plant_swapping(host, properties):
    host.write("proc/sys/vm/swappiness", "60\n")


def plant_dirty_ratio(host, properties):
    host.write("proc/sys/vm/dirty_ratio", "5\n")


def plant_huge_pages(host, properties):
    host.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")


def plant_remote_disk(host, properties):
    host.write("proc/self/mounts", "filer:/logs / nfs4 rw,relatime 0 0\n")


def plant_access_times(host, properties):
    host.write("proc/self/mounts", "/dev/sda1 / ext4 rw,strictatime 0 0\n")


def plant_no_barriers(host, properties):
    host.write("proc/self/mounts", "/dev/sda1 / ext4 rw,noatime,nobarrier 0 0\n")


def plant_full_disk(host, properties):
    host.free = Space(0.01, 0.5)


def plant_no_inodes(host, properties):
    host.free = Space(0.5, 0.1)


def plant_slow_disk(host, properties):
    host.flushes = [1.0] * 90 + [200.0] * 10


def plant_coarse_clock(host, properties):
    host.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "jiffies\n")


def plant_future(host, properties):
    (log,) = (properties.parent / "data").glob("*-*/*.log")
    os.utime(log, (NOW_S + 3600, NOW_S + 3600))


def plant_old_certificate(host, properties):
    pem(properties.parent / "broker.pem", 5)


def plant_expired_certificate(host, properties):
    pem(properties.parent / "broker.pem", -5)


def plant_open_key(host, properties):
    (properties.parent / "broker.pem").chmod(0o644)


def plant_unknown_name(host, properties):
    host.names.clear()


def plant_local_name(host, properties):
    host.names["broker.example"] = ["127.0.1.1"]


def plant_misspelt(host, properties):
    properties.write_text(
        properties.read_text().replace("log.retention.hours", "log.retenton.hours")
    )


def plant_bad_value(host, properties):
    properties.write_text(properties.read_text() + "num.partitions=none\n")


def plant_few_replicas(host, properties):
    properties.write_text(properties.read_text() + "min.insync.replicas=2\n")


def plant_no_super_user(host, properties):
    authorizer = "authorizer.class.name=kafka.security.auth.SimpleAclAuthorizer\n"
    properties.write_text(properties.read_text() + authorizer)


def plant_open_secret(host, properties):
    properties.write_text(properties.read_text() + "ssl.key.password=SESAME\n")
    properties.chmod(0o644)


def plant_open_key_of_a_listener(host, properties):
    pem(properties.parent / "other.pem", 365)
    (properties.parent / "other.pem").chmod(0o604)
    own = f"listener.name.ssl.ssl.keystore.location={properties.parent}/other.pem\n"
    properties.write_text(properties.read_text() + own)


FAULTS = [
    (plant_open_files, "open files", "warning", "the limit of open files is 4096"),
    (plant_small_buffers, "socket buffers", "warning", "net.core.rmem_max is 65536"),
    (plant_swapping, "swappiness", "warning", "vm.swappiness is 60"),
    (plant_dirty_ratio, "dirty pages", "warning", "vm.dirty_ratio is 5"),
    (plant_huge_pages, "huge pages", "warning", "always used"),
    (plant_remote_disk, "file system", "error", "is on nfs4 (/)"),
    (plant_access_times, "mount options", "warning", "without noatime"),
    (plant_no_barriers, "mount options", "error", "mounted with nobarrier"),
    (plant_full_disk, "free space", "error", "1 % of the space"),
    (plant_no_inodes, "free space", "warning", "10 % of the inodes"),
    (plant_slow_disk, "disk latency", "warning", "takes 200 ms (p99)"),
    (plant_coarse_clock, "clock", "warning", "jiffies"),
    (plant_future, "clock", "error", "3600 s ahead of the clock"),
    (plant_old_certificate, "certificate", "warning", "CN=broker.example"),
    (plant_expired_certificate, "certificate", "error", "has expired"),
    (plant_open_key, "private key", "error", "has the mode 0644"),
    (plant_unknown_name, "advertised address", "error", "broker.example cannot be resolved"),
    (plant_local_name, "advertised address", "error", "an address of this machine alone"),
    (plant_misspelt, "settings", "error", "did you mean log.retention.hours?"),
    (plant_bad_value, "settings", "error", "num.partitions=none"),
    (plant_few_replicas, "settings", "warning", "min.insync.replicas=2 is above"),
    (plant_no_super_user, "settings", "warning", "without super.users"),
    (plant_open_secret, "settings", "error", "has ssl.key.password and the mode 0644"),
    (plant_open_key_of_a_listener, "private key", "error", "other.pem has the mode 0604"),
]


def test_healthy_host_has_nothing(examine):
    """No finding, and the status is 0."""
    found, outcome = examine()

    assert found == []
    assert outcome.status == 0


@pytest.mark.parametrize(
    ("plant", "check", "severity", "said"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)
def test_each_planted_fault_is_found(examine, host, properties, plant, check, severity, said):
    """It alone, with what was found, what it should be, why, and what mends it."""
    plant(host, properties)
    found, outcome = examine()

    (finding,) = found
    assert (finding["check"], finding["severity"]) == (check, severity)
    assert said in finding["found"]
    assert all(finding[key] for key in ("threshold", "why", "mend"))
    assert outcome.status == {"error": 2, "warning": 1}[severity]


def test_findings_are_paragraphs_for_a_person(ottla, monkeypatch, host, properties):
    """Errors come first, and the last line counts."""
    plant_swapping(host, properties)
    plant_full_disk(host, properties)
    monkeypatch.setattr("ottla.cli.main.load_command", lambda name: DoctorCommand(host))
    lines = ottla("doctor", properties).lines

    assert lines[0].startswith("ERROR    free space: 1 % of the space of ")
    assert lines[5:9] == [
        "WARNING  swappiness: vm.swappiness is 60",
        "         should be: at most 10",
        "         why:       a broker that is swapped out stalls for seconds; its page cache can "
        "be given up",
        "         mend:      sysctl -w vm.swappiness=1",
    ]
    assert lines[-1] == "1 errors, 1 warnings"


@pytest.fixture
def cluster(admin):
    """Three brokers and a topic that is whole."""
    admin.nodes = [Node(number, f"b{number}.example", 9092) for number in range(3)]
    admin.add_topic("t", TopicPartitionInfo(0, 0, 0, (0, 1, 2), (0, 1, 2)))
    return admin


def test_healthy_cluster_has_nothing(examine, cluster):
    """All replicas are in sync, and all brokers can be reached."""
    assert examine("--bootstrap-server", "b0.example:9092")[0] == []


def test_cluster_is_examined(examine, host, cluster):
    """Brokers that cannot be reached, no leader, too few replicas in sync, a lone copy."""
    host.refused["b2.example"] = "Connection refused"
    cluster.add_topic(
        "u",
        TopicPartitionInfo(0, -1, 0, (2,), (2,)),
        TopicPartitionInfo(1, 1, 0, (1, 2), (1,)),
    )
    cluster.add_topic("__consumer_offsets", TopicPartitionInfo(0, 0, 0, (0,), (0,)))
    found, outcome = examine("--bootstrap-server", "b0.example:9092")

    assert [(each["severity"], each["found"]) for each in found] == [
        ("error", "broker 2 advertises b2.example:9092: Connection refused"),
        ("error", "partitions without a leader: u-0"),
        ("warning", "partitions with replicas out of sync: u-1"),
        ("warning", "__consumer_offsets has partitions with one replica"),
    ]
    assert outcome.status == 2


def test_broker_that_hangs_is_an_error_and_nothing_else_is_asked_of_it(examine, cluster):
    """It is registered for as long as its session, and nothing was said of it."""
    cluster.log_dirs[1] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    cluster.add_topic("u", TopicPartitionInfo(0, 1, 0, (0, 1), (0, 1)))
    cluster.offsets[TopicPartition("u", 0), int(NOW_S * 1000) + 3_600_000] = 7
    found, outcome = examine("--bootstrap-server", "b0.example:9092")

    assert [(each["severity"], each["found"]) for each in found] == [
        ("error", "broker 1 does not answer: REQUEST_TIMED_OUT: no answer")
    ]
    assert outcome.status == 2


def test_directories_that_have_failed_or_are_full_are_found(examine, cluster):
    """Those of all brokers, on whatever host."""
    cluster.log_dirs[2] = {
        "/good": LogDirDescription(ErrorCode.NONE, {}, 1000, 50),
        "/full": LogDirDescription(ErrorCode.NONE, {}, 1000, 49),
        "/bad": LogDirDescription(ErrorCode.KAFKA_STORAGE_ERROR, {}),
        "/old": LogDirDescription(ErrorCode.NONE, {}),
    }
    found, _ = examine("--bootstrap-server", "b0.example:9092")

    assert [(each["check"], each["found"]) for each in found] == [
        ("log directory", "/bad of broker 2 has failed: KAFKA_STORAGE_ERROR"),
        ("free space", "49 bytes are free for /full of broker 2"),
    ]


def test_user_without_the_right_to_see_directories_learns_the_rest(examine, cluster):
    """That is no fault of the brokers."""
    refusal = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")
    cluster.log_dirs = dict.fromkeys(range(3), refusal)

    assert examine("--bootstrap-server", "b0.example:9092")[0] == []


def test_log_that_is_deleted_meanwhile_ends_no_examination(data):
    """A broker that runs deletes segments."""
    logs = host_checks.written_s(str(data))
    gone = data / "t-0" / "00000000000000000001.log"
    gone.symlink_to(data / "nothing")

    assert list(logs) == [NOW_S - 3600]


def test_records_of_the_future_are_found(examine, cluster):
    """No retention by time deletes them; a partition that cannot be asked hides no other."""
    hour_ms = 3_600_000
    for name in ("u", "v"):
        cluster.add_topic(name, TopicPartitionInfo(0, 0, 0, (0, 1), (0, 1)))
    cluster.offsets[TopicPartition("u", 0), int(NOW_S * 1000) + hour_ms] = 7
    cluster.failures[TopicPartition("v", 0)] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "gone")
    found, outcome = examine("--bootstrap-server", "b0.example:9092")

    assert [(each["check"], each["found"]) for each in found] == [
        ("records", "records with timestamps of the future: u-0")
    ]
    assert outcome.status == 1


def test_many_names_are_cut():
    """The first five, and how many more."""
    assert cluster_checks.some([str(number) for number in range(9)]) == "0, 1, 2, 3, 4 and 4 more"


def test_a_start_warns_in_one_line(host, properties, caplog):
    """The line has the findings of the quick checks; a healthy host has none."""
    config = BrokerConfig.parse({"log.dirs": str(properties.parent / "data")})
    host.flush_ms = host.addresses = None
    host_checks.warn_at_start(config, host)
    assert caplog.messages == []

    plant_open_files(host, properties)
    plant_swapping(host, properties)
    plant_full_disk(host, properties)
    host_checks.warn_at_start(config, host)
    (line,) = caplog.messages
    assert "the limit of open files is 4096, should be at least 100000" in line
    assert "swappiness" not in line
    assert "1 % of the space of" in line


def test_real_host_can_be_asked(tmp_path):
    """The disk is measured without leaving a file behind, and this machine answers."""
    host = Machine()
    taken = host.flush_ms(str(tmp_path))

    assert len(taken) == machine.FLUSHES
    assert not list(tmp_path.iterdir())
    assert 0 <= host.space(str(tmp_path / "not" / "there")).bytes_free <= 1
    assert host.addresses("localhost")
    assert host.refusal("127.0.0.1", 1)
    assert host.number("/proc/no/such/file") is None
    found = host_checks.examine(
        host, BrokerConfig.parse({"log.dirs": str(tmp_path)}), host_checks.AT_START
    )
    assert all(each.mend for each in found)


def test_misspelt_settings_are_named_with_the_right_ones():
    """Fifty settings, each with a letter left out, are all recognized."""
    names = [name for name in sorted(BrokerConfig.keys) if len(name) > 15][:50]
    wrong = {name[:8] + name[9:]: name for name in names}
    found = list(setting_checks.misspelt_settings(dict.fromkeys(wrong, "1")))

    assert len(found) == 50
    assert [each.found.partition("did you mean ")[2] for each in found] == [
        f"{name}?" for name in wrong.values()
    ]
