"""Where things are in the tree: the paths that Kafka uses in ZooKeeper."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
CONFIG_GROUPS: Final = "/config/groups"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
CONFIG_CLIENTS: Final = "/config/clients"
CONFIG_USERS: Final = "/config/users"
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
    return entity_name if entity_name == DEFAULT_ENTITY else quote(entity_name, safe="*-._~")


def desanitize(node_name: str) -> str:
    return node_name if node_name == DEFAULT_ENTITY else unquote(node_name)
