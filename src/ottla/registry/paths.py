"""Where things are in the tree: the paths that Kafka uses in ZooKeeper."""

from __future__ import annotations

from typing import Final

from ottla.structs import ClientEntity

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
CONFIG_GROUPS: Final = "/config/groups"
CONFIG_CLIENT_METRICS: Final = "/config/client-metrics"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
CONFIG_CLIENTS: Final = "/config/clients"
CONFIG_USERS: Final = "/config/users"
CONFIG_IPS: Final = "/config/ips"
CONSUMERS: Final = "/consumers"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

DEFAULT_ENTITY: Final = "<default>"

PERSISTENT: Final = (
    BROKER_IDS,
    TOPICS,
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_GROUPS,
    CONFIG_CLIENTS,
    CONFIG_USERS,
    CONFIG_IPS,
    CONFIG_CHANGES,
    CONSUMERS,
    DELETE_TOPICS,
    "/cluster",
    BROKER_SEQUENCE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
)
"""What is made when a cluster starts for the first time: Kafka's tools expect to find it."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def consumer_ids(group: str) -> str:
    """The consumers of a group of the old kind: their registrations are the children."""
    return f"{CONSUMERS}/{group}/ids"


def consumer_id(group: str, consumer: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{consumer}"


def partition_owners(group: str, topic_name: str) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic_name}"


def partition_owner(group: str, topic_name: str, index: int) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic_name}/{index}"


def group_offsets(group: str, topic_name: str) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic_name}"


def group_offset(group: str, topic_name: str, index: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic_name}/{index}"


def configs(entity_type: str) -> str:
    """Whose children are the overrides of all topics, brokers, clients or users."""
    return f"/config/{entity_type}"


def config(entity_type: str, entity_name: str) -> str:
    """The overrides of a topic, broker, client or user; names are sanitised as Kafka does."""
    return f"{configs(entity_type)}/{sanitize(entity_name)}"


def sanitize(entity_name: str) -> str:
    """A name as it is written in a path; `<default>` stays as it is."""
    return entity_name if entity_name == DEFAULT_ENTITY else _quoted(entity_name)


def _quoted(name: str) -> str:
    """The name as Kafka's Sanitizer writes it, but for `.` and `..`, which no node can have."""
    if (name.isascii() and name.isalnum()) or name in (".", ".."):
        return name.replace(".", "%2E")
    from urllib.parse import quote  # most registries have no name to quote

    return quote(name, safe="-._").replace("~", "%7E")  # Python leaves the tilde alone


def desanitize(node_name: str) -> str:
    return node_name if node_name == DEFAULT_ENTITY else _unquoted(node_name)


def _unquoted(name: str) -> str:
    if "%" not in name:
        return name
    from urllib.parse import unquote

    return unquote(name)


_CLIENT_ENTITIES: Final = {
    ("users",): ("user",),
    ("users", "clients"): ("user", "client_id"),
    ("clients",): ("client_id",),
    ("ips",): ("ip",),
}
"""The shapes of their paths, and the attributes of `ClientEntity` in the same order."""


def client_entity(entity: ClientEntity) -> str:
    """The path of the entity below /config, as `users/alice/clients/app`."""
    places = zip(("users", "clients", "ips"), entity, strict=True)
    return "/".join(
        f"{place}/{_quoted(name) or DEFAULT_ENTITY}" for place, name in places if name is not None
    )


def parse_client_entity(entity_path: str) -> ClientEntity | None:
    """The entity at a path below /config; None for a path of another kind."""
    parts = entity_path.split("/")
    attributes = _CLIENT_ENTITIES.get(tuple(parts[::2]))
    if attributes is None or len(parts) % 2:
        return None
    names = ["" if part == DEFAULT_ENTITY else _unquoted(part) for part in parts[1::2]]
    return ClientEntity(**dict(zip(attributes, names, strict=True)))
