"""Sessions with the ZooKeeper that a command names, or one clear line why there is none.

Kafka 2.3's tools with `--zookeeper` wrote orders for the controller into ZooKeeper. Today the
brokers change topics and replicas, with the same outcome and with a response: the commands find
them in ZooKeeper and send them requests. Listings need no live broker here either, so topics that
are marked for deletion are shown, and entities whose settings were all removed. Settings of users,
client ids and addresses are written into the nodes; a preferred election is started by a node,
without a response.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.terminal import first_reachable
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

SESSION_TIMEOUT_S: Final = 30.0
CONNECTION_TIMEOUT_S: Final = 30.0
"""As Kafka's tools have it: a server that is busy may take long to give a session."""


def address(text: str) -> tuple[tuple[str, ...], str]:
    """The servers and the chroot of a connect string."""
    try:
        return parse_connect("HOST:PORT", text)
    except ConfigError as error:
        raise CommandError(error.message) from error


def reachable(servers: tuple[str, ...]) -> tuple[str, int]:
    """The first server that accepts a connection; CommandError where none does."""
    return first_reachable(servers, "ZooKeeper")


def connect(servers: tuple[str, ...], chroot: str, log_level: str) -> KazooClient:
    """A session; CommandError where the server does not give one."""
    from kazoo.client import KazooClient

    log = logging.getLogger("kazoo")
    log.setLevel(log_level if log_level in ("DEBUG", "INFO") else logging.CRITICAL)
    client = KazooClient(",".join(servers) + chroot, timeout=SESSION_TIMEOUT_S, logger=log)
    if not client.start_async().wait(CONNECTION_TIMEOUT_S):
        client.stop()
        raise CommandError(
            f"ZooKeeper at {','.join(servers)} gave no session within {CONNECTION_TIMEOUT_S:g} s"
        )
    return client


@contextmanager
def session(text: str, log_level: str) -> Iterator[KazooClient]:
    """A session at this connect string, for one block; refusals become a CommandError."""
    from kazoo.exceptions import NoAuthError

    servers, chroot = address(text)
    reachable(servers)
    client = connect(servers, chroot, log_level)
    try:
        yield client
    except NoAuthError as error:
        raise CommandError(
            f"the ACLs of ZooKeeper at {text} do not let this tool in: use --bootstrap-server"
        ) from error
    except KafkaError as error:
        raise CommandError(error.message) from error
    finally:
        client.stop()
        client.close()


def node_data(client: KazooClient, path: str) -> bytes | None:
    """The data of a node; None where there is none."""
    from kazoo.exceptions import NoNodeError

    try:
        data: bytes | None = client.get(path)[0]
    except NoNodeError:
        return None
    return data or b""


def child_names(client: KazooClient, path: str) -> list[str]:
    """The names below a node, in no order; none where it is not there."""
    from kazoo.exceptions import NoNodeError

    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []
