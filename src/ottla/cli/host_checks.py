"""Checks of the machine that a broker runs on: limits, memory, disks, clock, keys, addresses.

A check is a generator of findings. Those in `AT_START` read a few small files and are made at each
start of a broker as well; the others write, connect or resolve.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.cli.finding import ERROR, WARNING, Finding
from ottla.cli.machine import Machine, existing

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

OPEN_FILES: Final = 100_000
SWAPPINESS: Final = 10
DIRTY_RATIO: Final = 20
FREE_SHARE: Final = 0.15
LEAST_FREE_SHARE: Final = 0.05
FLUSH_MS: Final = 50
CLOCK_SLACK_S: Final = 60
CERTIFICATE_DAYS: Final = 30
DAY_S: Final = 24 * 3600
SYSCTL: Final = "/proc/sys"
HUGE_PAGES: Final = "/sys/kernel/mm/transparent_hugepage/enabled"
CLOCK_SOURCE: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")
FORGETFUL: Final = ("tmpfs", "ramfs", "overlay")
UNSAFE_OPTIONS: Final = ("nobarrier", "barrier=0")
EVERYWHERE: Final = ("", "0.0.0.0", "::")
Check = Callable[[Machine, "BrokerConfig"], Iterator[Finding]]


def open_files(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """The limit of open files, up to which a broker raises its own when it starts."""
    limits = host.text("/proc/self/limits")
    found = re.search(r"^Max open files +\w+ +(\w+)", limits, re.MULTILINE)
    if found and found[1].isdecimal() and int(found[1]) < OPEN_FILES:
        yield Finding(
            "open files",
            WARNING,
            f"the limit of open files is {found[1]}",
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
    """The kernel's source of time."""
    if host.text(CLOCK_SOURCE) == "jiffies":
        yield Finding(
            "clock",
            WARNING,
            "the clock source is jiffies",
            "tsc, kvm-clock or another one of hardware",
            "timestamps and timeouts are only as fine as the tick of the kernel",
            f"echo tsc > {CLOCK_SOURCE}",
        )


def file_systems(host: Machine, config: BrokerConfig) -> Iterator[Finding]:
    """The file systems of the log directories, and their mount options."""
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
    """The permissions of the private keys."""
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
    now = host.now_s()
    for folder in config.log_dirs:
        newest = max(written_s(folder), default=0)
        if newest > now + CLOCK_SLACK_S:
            yield Finding(
                "clock",
                ERROR,
                f"the newest log in {folder} is {newest - now:.0f} s ahead of the clock",
                "no log is newer than now",
                "retention, timestamps and the expiry of certificates and sessions go by the clock",
                "chronyc makestep (or timedatectl set-ntp true)",
            )


def written_s(folder: str) -> Iterator[float]:
    """When each log was last written; a broker that runs may delete one at any moment."""
    from pathlib import Path

    for path in Path(folder).glob("*-*/*.log"):
        with suppress(FileNotFoundError):
            yield path.stat().st_mtime


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
    """Whether clients can resolve, and reach, the advertised addresses."""
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


def examine(host: Machine, config: BrokerConfig, checks: Iterable[Check]) -> list[Finding]:
    """The findings of all checks, errors first."""
    found = [finding for check in checks for finding in check(host, config)]
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def warn_at_start(config: BrokerConfig, host: Machine | None = None) -> None:
    """Log the findings of the quick checks in one line, when a broker starts."""
    found = examine(host or Machine(), config, AT_START)
    if found:
        logger.warning(
            "this host may hurt the broker (ottla doctor says why, and what mends it): %s",
            "; ".join(f"{each.found}, should be {each.threshold}" for each in found),
        )
