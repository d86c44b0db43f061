"""One node of a ZooKeeper that the console asks itself, such as that of Apache Kafka's brokers.

Nothing is written: the session has no ephemeral nodes, and no node of a chroot is made.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from ottla.config.zookeeper_config import parse_connect
from ottla.console.refusals import NotFound, Refused
from ottla.registry.shown_node import is_path, shown_node
from ottla.registry.tree import Stat

SESSION_TIMEOUT_S: Final = 4
ANSWER_LIMIT_S: Final = 5
MOST_LISTED: Final = 100_000
"""A node with more nodes below it is not asked for their names: they come as one answer."""
LARGEST_DATA: Final = 1 << 20
"""jute.maxbuffer: a node has no more data, unless its servers were told to take more."""

QUIET: Final = logging.getLogger("ottla.console.kazoo")
"""What kazoo would say of a server that is away is on the page."""
QUIET.setLevel(logging.CRITICAL)


def zookeeper_node(connect: str, path: str) -> dict[str, Any]:
    """A node at a path below the chroot of `host1:2181,host2:2181/chroot`.

    It waits for its answer, so it runs on a thread of its own. NotFound where there is no such
    node; Refused where the path is none, where ACLs forbid it, and where no server answers.
    """
    if not is_path(path):
        raise Refused(f"path: must be that of a node, as /brokers/ids, not {path[:100]!r}")
    address = parse_connect("--zookeeper", connect)
    full_path = (address.chroot + path).rstrip("/") or "/"
    servers = ",".join(address.servers)
    client = KazooClient(servers, timeout=SESSION_TIMEOUT_S, read_only=True, logger=QUIET)
    try:
        client.start(ANSWER_LIMIT_S)
        return read(client, path, full_path)
    except kazoo_errors.NoNodeError:
        raise NotFound(f"there is no node {full_path}") from None
    except kazoo_errors.NoAuthError:
        raise Refused(
            f"{full_path}: the ACLs of ZooKeeper do not let the console in", 403
        ) from None
    except KazooTimeoutError:
        raise Refused(f"No ZooKeeper answers at {connect}.", 502) from None
    except kazoo_errors.KazooException as error:
        raise Refused(f"ZooKeeper at {connect}: {error!r}", 502) from None
    finally:
        client.stop()
        client.close()


def read(client: KazooClient, path: str, full_path: str) -> dict[str, Any]:
    """A node, whose size is asked for first."""
    found = answer_of(client.exists_async(full_path))
    if found is None:
        raise kazoo_errors.NoNodeError
    data = f"[{found.dataLength} bytes]".encode()
    if found.dataLength <= LARGEST_DATA:
        data = answer_of(client.get_async(full_path))[0] or b""
    children: list[str] = []
    if found.numChildren <= MOST_LISTED:
        children = sorted(answer_of(client.get_children_async(full_path)))
    return shown_node(path, data, stat_of(found), children) | {
        "number_of_children": max(found.numChildren, len(children))
    }


def answer_of(promise: Any) -> Any:
    """The answer that kazoo has promised; KazooTimeoutError where it does not come."""
    return promise.get(True, ANSWER_LIMIT_S)


def stat_of(found: ZnodeStat) -> Stat:
    """The facts of a node, as the registry has them."""
    return Stat(
        found.version,
        found.cversion,
        found.czxid,
        found.mzxid,
        found.ctime,
        found.mtime,
        found.ephemeralOwner != 0,
        found.dataLength,
        found.numChildren,
    )
