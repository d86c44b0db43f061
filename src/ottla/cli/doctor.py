"""`ottla doctor`: what a host, a property file or a cluster has that will hurt, and how to mend it.

A check is a generator of findings. Those in `AT_START` read a few small files and are made at each
start of a broker as well; the others write, connect or resolve.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import stat
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.command import Command
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_overrides,
    add_property_file,
    command_settings,
    load_properties,
    server_settings,
)
from ottla.cli.terminal import Terminal
from ottla.config.known_keys import shown
from ottla.errors import ConfigError
from ottla.structs import INTERNAL_TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from ottla import Admin
    from ottla.clients.admin.descriptions import TopicDescription
    from ottla.config.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

ERROR, WARNING = "error", "warning"
OPEN_FILES: Final = 100_000
SWAPPINESS: Final = 10
DIRTY_RATIO: Final = 20
FREE_SHARE: Final = 0.15
LEAST_FREE_SHARE: Final = 0.05
FLUSH_MS: Final = 50
FLUSHES: Final = 100
FLUSH_BYTES: Final = 4096
PROBE: Final = ".ottla-doctor"
CLOCK_SLACK_S: Final = 60
CERTIFICATE_DAYS: Final = 30
DAY_S: Final = 24 * 3600
CONNECT_S: Final = 3.0
SYSCTL: Final = "/proc/sys"
HUGE_PAGES: Final = "/sys/kernel/mm/transparent_hugepage/enabled"
CLOCK_SOURCE: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")
FORGETFUL: Final = ("tmpfs", "ramfs", "overlay")
UNSAFE_OPTIONS: Final = ("nobarrier", "barrier=0")
EVERYWHERE: Final = ("", "0.0.0.0", "::")


class Finding(NamedTuple):
    """Something that will hurt: what was found, what it should be, why, and what mends it."""

    check: str
    severity: str
    found: str
    threshold: str
    why: str
    mend: str


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    options: tuple[str, ...]


class Space(NamedTuple):
    """Which share of a file system is free: of its bytes, and of its inodes."""

    bytes_free: float
    inodes_free: float


class Machine:
    """What the checks ask of a machine; `root` is where its /proc and /sys are."""

    def __init__(self, root: Path | str = "/") -> None:
        self.root = root

    def text(self, path: str) -> str:
        """What a file of the system says, "" where there is none."""
        try:
            with open(os.path.join(self.root, path.lstrip("/")), encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def number(self, path: str) -> int | None:
        """The number that a file of the system starts with."""
        found = re.match(r"-?\d+", self.text(path))
        return int(found[0]) if found else None

    def mount_of(self, path: str) -> Mount | None:
        """The file system that a path is on, or would be."""
        best = None
        wanted = os.path.realpath(path)
        for line in self.text("/proc/self/mounts").splitlines():
            _, point, kind, options = line.split()[:4]
            point = point.replace("\\040", " ")
            inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
            if inside and (best is None or len(point) >= len(best.point)):
                best = Mount(point, kind, tuple(options.split(",")))
        return best

    def space(self, path: str) -> Space | None:
        """The free space where a path is, or would be."""
        try:
            found = os.statvfs(existing(path))
        except OSError:
            return None
        return Space(
            found.f_bavail / found.f_blocks if found.f_blocks else 1.0,
            found.f_favail / found.f_files if found.f_files else 1.0,
        )

    def flush_ms(self, folder: str) -> list[float]:
        """How long the disk takes to have small writes, each: a file is written and removed."""
        from pathlib import Path

        path = Path(folder) / PROBE
        taken = []
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                for _ in range(FLUSHES):
                    begun = time.perf_counter()
                    os.write(fd, b"\0" * FLUSH_BYTES)
                    os.fsync(fd)
                    taken.append((time.perf_counter() - begun) * 1000)
            finally:
                os.close(fd)
        finally:
            path.unlink(missing_ok=True)
        return taken

    def now_s(self) -> float:
        return time.time()

    def addresses(self, name: str) -> list[str]:
        """The addresses of a host; OSError where it has none."""
        return sorted({str(each[4][0]) for each in socket.getaddrinfo(name, None)})

    def refusal(self, host: str, port: int) -> str | None:
        """Why no connection can be made; None if one can."""
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except OSError as error:
            return error.strerror or str(error)
        return None


def existing(path: str) -> str:
    """The path, or the closest folder above it that exists."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


Check = Callable[[Machine, "BrokerConfig"], Iterator[Finding]]


# The host, as the kernel tells about it


def open_files(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """The limit of open files, up to which a broker raises its own when it starts."""
    limits = host.text("/proc/self/limits")
    found = re.search(r"^Max open files +\w+ +(\w+)", limits, re.MULTILINE)
    if found and found[1].isdecimal() and int(found[1]) < OPEN_FILES:
        yield Finding(
            "open files",
            WARNING,
            f"the limit is {found[1]}",
            f"at least {OPEN_FILES}",
            "each segment and each connection takes descriptors; without one a broker can neither "
            "open a log nor accept a client",
            f"ulimit -Hn {OPEN_FILES} (LimitNOFILE={OPEN_FILES} in a unit of systemd)",
        )


def socket_buffers(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """The kernel cuts buffers and backlogs that are larger than its own limits."""
    for name, wanted, setting in (
        ("net/core/rmem_max", config.socket_receive_buffer_bytes, "socket.receive.buffer.bytes"),
        ("net/core/wmem_max", config.socket_send_buffer_bytes, "socket.send.buffer.bytes"),
        ("net/core/somaxconn", config.socket_listen_backlog_size, "socket.listen.backlog.size"),
    ):
        limit = host.number(f"{SYSCTL}/{name}")
        if limit is not None and wanted is not None and limit < wanted:
            yield Finding(
                "socket buffers",
                WARNING,
                f"{name.replace('/', '.')} is {limit}",
                f"at least {wanted}, the broker's {setting}",
                "the kernel silently gives less than the setting asks for",
                f"sysctl -w {name.replace('/', '.')}={wanted}",
            )


def memory_settings(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """Swapping, how much may wait for the disk, and huge pages."""
    swappiness = host.number(f"{SYSCTL}/vm/swappiness")
    if swappiness is not None and swappiness > SWAPPINESS:
        yield Finding(
            "swappiness",
            WARNING,
            f"vm.swappiness is {swappiness}",
            f"at most {SWAPPINESS}",
            "a broker that is swapped out stalls for seconds; its page cache can be given up",
            "sysctl -w vm.swappiness=1",
        )
    dirty = host.number(f"{SYSCTL}/vm/dirty_ratio")
    if dirty is not None and dirty < DIRTY_RATIO and not host.number(f"{SYSCTL}/vm/dirty_bytes"):
        yield Finding(
            "dirty pages",
            WARNING,
            f"vm.dirty_ratio is {dirty}",
            f"at least {DIRTY_RATIO}",
            "writers wait for the disk as soon as this share of the memory waits for it",
            "sysctl -w vm.dirty_ratio=60 vm.dirty_background_ratio=5",
        )
    if "[always]" in host.text(HUGE_PAGES):
        yield Finding(
            "huge pages",
            WARNING,
            "transparent huge pages are always used",
            "madvise or never",
            "the kernel stops a process to put pages together, at moments that nobody chooses",
            f"echo madvise > {HUGE_PAGES}",
        )


def clock_source(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """What the kernel counts time by."""
    if host.text(CLOCK_SOURCE) == "jiffies":
        yield Finding(
            "clock",
            WARNING,
            "the clock source is jiffies",
            "tsc, kvm-clock or another one of hardware",
            "timestamps and timeouts are only as fine as the tick of the kernel",
            f"echo tsc > {CLOCK_SOURCE}",
        )


# The log directories


def file_systems(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """What the log directories are on."""
    for folder in config.log_dirs:
        mount = host.mount_of(folder)
        if mount is None:
            continue
        where = f"{folder} is on {mount.kind} ({mount.point})"
        wanted = "a local file system: xfs or ext4"
        if mount.kind in REMOTE:
            why = "files that are open and deleted, and locks, are not safe there"
            yield Finding("file system", ERROR, where, wanted, why, "set log.dirs to a local disk")
        elif mount.kind in FORGETFUL:
            why = "its files are gone with the machine or the container"
            yield Finding("file system", WARNING, where, wanted, why, "set log.dirs to a disk")
        unsafe = [option for option in mount.options if option in UNSAFE_OPTIONS]
        if unsafe:
            yield Finding(
                "mount options",
                ERROR,
                f"{mount.point} is mounted with {unsafe[0]}",
                "write barriers",
                "what was flushed can be lost with the power, unless the controller has a battery",
                f"mount -o remount,barrier {mount.point}",
            )
        if not {"noatime", "relatime"} & set(mount.options):
            yield Finding(
                "mount options",
                WARNING,
                f"{mount.point} is mounted without noatime",
                "noatime, or relatime at least",
                "each read of a log writes the time of the read to the disk",
                f"mount -o remount,noatime {mount.point}",
            )


def free_space(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """How full the disks of the log directories are."""
    for folder in config.log_dirs:
        space = host.space(folder)
        for kind, share in zip(("space", "inodes"), space or (), strict=False):
            if share < FREE_SHARE:
                yield Finding(
                    "free space",
                    ERROR if share < LEAST_FREE_SHARE else WARNING,
                    f"{share * 100:.0f} % of the {kind} of {folder} is free",
                    f"at least {FREE_SHARE * 100:.0f} %",
                    "a broker whose disk is full takes the whole directory out of service",
                    "lower retention.ms or retention.bytes of the largest topics (ottla log-dirs "
                    "--describe), or add a directory to log.dirs",
                )


def key_files(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """Who may read the private key."""
    for path in private_files(config):
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            yield Finding(
                "private key",
                ERROR,
                f"{path} has the mode {stat.S_IMODE(mode):04o}",
                "0640 or less",
                "anybody on this machine can read the key and stand in for the broker",
                f"chmod 600 {path}",
            )


def private_files(config: BrokerConfig) -> list[str]:
    """The files that hold the broker's private keys."""
    stores = [config.ssl_of(each.listener_name) for each in config.listeners]
    found = {store.ssl_keystore_location for store in stores} | {config.ssl_keystore_location}
    return sorted(path for path in found if path)


AT_START: Final[tuple[Check, ...]] = (
    open_files,
    socket_buffers,
    clock_source,
    file_systems,
    free_space,
    key_files,
)


# What takes longer


def flush_time(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """How long a flush takes, measured."""
    for folder in config.log_dirs:
        try:
            taken = sorted(host.flush_ms(existing(folder)))
        except OSError as error:
            why = "the broker would not be able to write its logs"
            mend = f"chown the folder to the user of the broker: chown {os.getuid()} {folder}"
            found = f"{existing(folder)} cannot be written: {error.strerror}"
            yield Finding("log directory", ERROR, found, "writable", why, mend)
            continue
        slowest = taken[int(0.99 * (len(taken) - 1))]
        if slowest > FLUSH_MS:
            yield Finding(
                "disk latency",
                WARNING,
                f"a flush in {existing(folder)} takes {slowest:.0f} ms (p99)",
                f"at most {FLUSH_MS} ms",
                "checkpoints, and appends with a flush interval, wait for it",
                "move log.dirs to a disk of its own; look at its load with iostat -x 1",
            )


def clock(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """A log that is newer than now: the clock has gone back, or will jump."""
    from pathlib import Path

    now = host.now_s()
    for folder in config.log_dirs:
        newest = max((path.stat().st_mtime for path in Path(folder).glob("*-*/*.log")), default=0)
        if newest > now + CLOCK_SLACK_S:
            yield Finding(
                "clock",
                ERROR,
                f"the newest log in {folder} is {newest - now:.0f} s ahead of the clock",
                "no log is newer than now",
                "retention, timestamps and the expiry of certificates and sessions go by the clock",
                "chronyc makestep (or timedatectl set-ntp true)",
            )


def certificates(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """When the broker's certificates expire."""
    for path in private_files(config):
        for name, ends_s in expiries(path):
            days = int((ends_s - host.now_s()) // DAY_S)
            if days < CERTIFICATE_DAYS:
                yield Finding(
                    "certificate",
                    ERROR if days < 0 else WARNING,
                    f"{name} in {path} "
                    + (f"expires in {days} days" if days >= 0 else "has expired"),
                    f"at least {CERTIFICATE_DAYS} days are left",
                    "clients and brokers refuse to connect from that moment on",
                    f"renew the certificate in {path}",
                )


def expiries(path: str) -> list[tuple[str, float]]:
    """The certificates of a PEM file, each with the second in which it ends."""
    from pathlib import Path

    try:
        from cryptography.x509 import load_pem_x509_certificates

        found = load_pem_x509_certificates(Path(path).read_bytes())
    except (ImportError, OSError, ValueError):
        return []
    return [
        (each.subject.rfc4514_string() or "a certificate", each.not_valid_after_utc.timestamp())
        for each in found
    ]


def advertised(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """Whether clients can resolve, and come to, the addresses that they are told."""
    listens = {each.listener_name: each.host for each in config.listeners}
    for point in config.advertised_listeners:
        if point.host in EVERYWHERE:
            continue
        try:
            addresses = host.addresses(point.host)
        except OSError as error:
            yield unreachable(f"{point.host} cannot be resolved: {error.strerror or error}")
            continue
        is_local = all(each.startswith("127.") or each == "::1" for each in addresses)
        if is_local and listens.get(point.listener_name) in EVERYWHERE:
            yield unreachable(f"{point} is an address of this machine alone")


def unreachable(found: str) -> Finding:
    return Finding(
        "advertised address",
        ERROR,
        found,
        "an address that clients can reach",
        "clients connect to what the broker tells them, whatever they connected to first",
        "set advertised.listeners=PLAINTEXT://NAME:9092 to a name that clients resolve",
    )


ON_DEMAND: Final[tuple[Check, ...]] = (
    *(*AT_START, memory_settings),
    *(flush_time, clock, certificates, advertised),
)
"""The kernel's usual memory settings are not a broker's: a line at each start would be noise."""


# The property file


def misspelt_settings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that are nearly settings."""
    from ottla.config.broker_config import BrokerConfig

    for name, value in settings.items():
        if name in BrokerConfig.known_names():
            continue
        try:
            BrokerConfig.refuse_misspelt(name, value)
        except ConfigError as error:
            yield Finding(
                "settings",
                ERROR,
                error.message,
                "a setting of docs/operate/configuration/broker.md",
                "the default is in force, not what the file says",
                f"sed -i 's/^{name}=/{error.message.rpartition(' ')[2].rstrip('?')}=/' the file",
            )


def parsed(settings: Mapping[str, str]) -> tuple[BrokerConfig, list[Finding]]:
    """The settings of a file, as far as they have names and are valid, and what is wrong."""
    from ottla.config.broker_config import BrokerConfig

    misspelt = {name: list(misspelt_settings({name: settings[name]})) for name in settings}
    findings = [finding for each in misspelt.values() for finding in each]
    try:
        others = {name: value for name, value in settings.items() if not misspelt[name]}
        return BrokerConfig.parse(others), findings
    except ConfigError as error:
        name = error.message.partition("=")[0]
        why, mend = "the broker does not start with it", f"change {name} as the rule says"
        findings.append(Finding("settings", ERROR, error.message, "a valid value", why, mend))
        return BrokerConfig.parse(), findings


def rules(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """Valid settings that do not go together."""
    if config.min_insync_replicas > config.default_replication_factor:
        yield Finding(
            "settings",
            WARNING,
            f"min.insync.replicas={config.min_insync_replicas} is above "
            f"default.replication.factor={config.default_replication_factor}",
            "as many replicas as must be in sync, and one more",
            "topics that are created without a number of replicas refuse each acks=all produce",
            f"set default.replication.factor={config.min_insync_replicas + 1}",
        )
    if config.authorizer_class_name and not config.super_users:
        yield Finding(
            "settings",
            WARNING,
            f"authorizer.class.name={config.authorizer_class_name} without super.users",
            "the principal of the brokers, and one of an operator",
            "brokers cannot fetch from each other, and nobody can add the first ACL",
            "set super.users=User:NAME;User:NAME",
        )


def secrets_in(path: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Who may read passwords that stand in the property file."""
    secrets = [name for name, value in settings.items() if shown(name, value) != value]
    mode = os.stat(path).st_mode
    if secrets and mode & (stat.S_IRWXO | stat.S_IWGRP):
        yield Finding(
            "settings",
            ERROR,
            f"{path} has {secrets[0]} and the mode {stat.S_IMODE(mode):04o}",
            "0640 or less",
            "anybody on this machine can read the password",
            f"chmod 600 {path}",
        )


# The cluster


def cluster(admin: Admin, host: Machine) -> Iterator[Finding]:
    """What a running cluster tells about its brokers and partitions."""
    nodes = admin.describe_cluster().nodes
    for node in nodes:
        refusal = host.refusal(node.host, node.port)
        if refusal:
            yield unreachable(f"broker {node.id} advertises {node.host}:{node.port}: {refusal}")
    topics = admin.describe_topics(sorted(admin.list_topics()))
    leaderless, behind, single = [], [], []
    for name, topic in topics.items():
        for each in topic.partitions:
            if each.leader < 0:
                leaderless.append(f"{name}-{each.partition}")
            elif len(each.isr) < len(each.replicas):
                behind.append(f"{name}-{each.partition}")
        is_single = any(len(each.replicas) == 1 for each in topic.partitions)
        if is_single and name in INTERNAL_TOPICS and len(nodes) > 1:
            single.append(name)
    yield from replication(leaderless, behind, single)
    yield from future_records(admin, topics, host.now_s())


def future_records(
    admin: Admin, topics: Mapping[str, TopicDescription], now_s: float
) -> Iterator[Finding]:
    """Records that say they are of a time to come, which no retention by time deletes."""
    from ottla.clients.admin.admin_client import BulkError
    from ottla.clients.topic_offsets import ListOffsetsResult
    from ottla.log.log_retention import FUTURE_MS
    from ottla.structs import TopicPartition

    future_ms = int(now_s * 1000) + FUTURE_MS
    led = {
        TopicPartition(name, each.partition): future_ms
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader >= 0
    }
    try:
        answers: Mapping[TopicPartition, object] = admin.list_offsets(led)
    except BulkError as error:  # a partition whose broker is gone is told of above
        answers = error.results
    found = [
        partition
        for partition, each in answers.items()
        if isinstance(each, ListOffsetsResult) and each.offset >= 0
    ]
    if found:
        yield Finding(
            "records",
            WARNING,
            f"records with timestamps of the future: {some([str(each) for each in found])}",
            "timestamps in milliseconds, of now or of the past",
            "retention.ms deletes neither their segments nor those behind them until that time",
            "mend the producer's clock, and set message.timestamp.after.max.ms for the topic; "
            "what is there goes by retention.bytes, or when its offsets are deleted",
        )


def replication(leaderless: list[str], behind: list[str], single: list[str]) -> Iterator[Finding]:
    """The findings about partitions without a leader, replicas that lag, and lone copies."""
    describe = "ottla topics --describe"
    if leaderless:
        yield Finding(
            "replication",
            ERROR,
            f"partitions without a leader: {some(leaderless)}",
            "each partition has a leader",
            "nobody can write or read them",
            f"start the brokers that have their replicas: {describe} --unavailable-partitions",
        )
    if behind:
        yield Finding(
            "replication",
            WARNING,
            f"partitions with replicas out of sync: {some(behind)}",
            "all replicas are in sync",
            "the next broker that dies may take the last copy of records with it",
            f"look at the brokers that are missing: {describe} --under-replicated-partitions",
        )
    for name in single:
        yield Finding(
            "replication",
            WARNING,
            f"{name} has partitions with one replica",
            "as many replicas as the topics of users, 3 at best",
            "offsets of groups, or transactions, are gone with one broker",
            "ottla reassign-partitions --execute with a plan of more replicas",
        )


def some(names: list[str], most: int = 5) -> str:
    """The first of the names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def examine(host: Machine, config: BrokerConfig, checks: Iterable[Check]) -> list[Finding]:
    """The findings of all checks, errors first."""
    found = [finding for check in checks for finding in check(host, config)]
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def warn_at_start(config: BrokerConfig, host: Machine | None = None) -> None:
    """Log in one line what the quick checks find, when a broker starts."""
    found = examine(host or Machine(), config, AT_START)
    if found:
        logger.warning(
            "this host may hurt the broker (ottla doctor says why, and what mends it): %s",
            "; ".join(f"{each.found}, should be {each.threshold}" for each in found),
        )


class DoctorCommand(Command):
    """Examines this host, a broker's property file and, if it is named, a running cluster."""

    name = "doctor"
    help = "Examine a host, a property file and a cluster: what will hurt, why, and what mends it."
    examples = (
        "ottla doctor config/server.properties",
        "ottla doctor config/server.properties --bootstrap-server localhost:9092 --format json",
    )

    def __init__(self, host: Machine | None = None) -> None:
        self.host = host or Machine()

    def add_arguments(self, parser: ArgumentParser) -> None:
        from ottla.cli.output import add_format  # not when a broker starts

        add_property_file(parser, "SERVER.PROPERTIES", "The broker's property file.")
        add_overrides(parser, "A setting that wins over the property file; may be repeated.")
        add_bootstrap_server(parser)
        add_command_config(parser)
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        from ottla.cli.output import TEXT, show_rows

        settings = server_settings(arguments)
        config, found = parsed(settings)
        found += examine(self.host, config, (*ON_DEMAND, rules))
        if path := arguments.config or arguments.file:
            found += secrets_in(path, load_properties(path))
        if arguments.bootstrap_server:
            servers, own = arguments.bootstrap_server, command_settings(arguments)
            with terminal.admin(servers, own) as admin:
                found += cluster(admin, self.host)
        found.sort(key=lambda finding: finding.severity != ERROR)
        if arguments.format != TEXT:
            show_rows([each._asdict() for each in found], arguments.format, terminal)
        else:
            print_findings(found, terminal)
        errors = sum(each.severity == ERROR for each in found)
        return 2 if errors else 1 if found else 0


def print_findings(found: list[Finding], terminal: Terminal) -> None:
    """A paragraph for each finding, and a last line that counts them."""
    for each in found:
        terminal.print(f"{each.severity.upper():<9}{each.check}: {each.found}")
        terminal.print(f"         should be: {each.threshold}")
        terminal.print(f"         why:       {each.why}")
        terminal.print(f"         mend:      {each.mend}")
        terminal.print()
    errors = sum(each.severity == ERROR for each in found)
    terminal.print(f"{errors} errors, {len(found) - errors} warnings")
