"""Changes of topics: create one, delete one whose name was typed, and change a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource, NewTopic
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit, whole_number
from ottla.console.refusals import Refused
from ottla.errors import KafkaError
from ottla.protocol.configs import ConfigOperation
from ottla.structs import BROKER_DEFAULT, ConfigSource

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_PARTITIONS_OF_NEW: Final = 10_000
MOST_REPLICAS: Final = 1_000


async def new_topic(visit: Visit) -> Data:
    """The form for a topic."""
    cluster = await visit.cluster.snapshot()
    return {"brokers": len(cluster.nodes), "name": visit.query.get("name", "")}


async def create(visit: Visit) -> ChangeOutcome:
    """Create the topic of the form."""
    topic = topic_of(visit.form)
    outcome = (await visit.cluster.topics.create_topics([topic], False))[topic.name]
    if outcome is not None:
        raise refusal(outcome)
    new = {
        "partitions": topic.num_partitions,
        "replicas": topic.replication_factor,
        "settings": dict(topic.configs),
    }
    path, message = f"/t/{topic.name}/records", f"Topic {topic.name} was created."
    return ChangeOutcome(path, message, "topics --create", topic.name, new=new)


def topic_of(fields: Mapping[str, str]) -> NewTopic:
    """The topic that the fields describe; empty numbers are the broker's defaults."""
    name = fields.get("name", "").strip()
    if not name:
        raise Refused("a topic needs a name")
    return NewTopic(
        name,
        count_of(fields, "partitions", MOST_PARTITIONS_OF_NEW),
        count_of(fields, "replicas", MOST_REPLICAS),
        configs=settings_of(fields.get("settings", "")),
    )


def count_of(fields: Mapping[str, str], name: str, most: int) -> int:
    """A number of the form; that of the broker where the field is empty."""
    text = fields.get(name, "").strip()
    if not text:
        return BROKER_DEFAULT
    number = whole_number(text, most)
    if not number:
        raise Refused(f"{name}={text[:20]}: must be a number from 1 to {most:,}")
    return number


def settings_of(text: str) -> dict[str, str]:
    """The settings of lines as `retention.ms=3600000`."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Refused(f"settings: “{line[:40]}” is no line of the form name=value")
        found[name.strip()] = value.strip()
    return found


async def delete(visit: Visit) -> ChangeOutcome:
    """Delete a topic, if its name was typed."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    if visit.form.get("name", "").strip() != topic.name:
        raise Refused(f"type the topic's name, {topic.name}, to delete it and all of its records")
    outcome = (await visit.cluster.topics.delete_topics([topic.name]))[topic.name]
    if outcome is not None:
        raise refusal(outcome)
    old = {"partitions": len(topic.partitions)}
    message = f"Topic {topic.name} was deleted."
    return ChangeOutcome("/topics", message, "topics --delete", topic.name, old=old)


async def change_setting(visit: Visit) -> ChangeOutcome:
    """Set one setting of a topic, or remove the topic's own value of it."""
    topic = await visit.cluster.topic(str(visit.place["topic"]))
    resource, name = ConfigResource.topic(topic.name), visit.form.get("name", "")
    known = (await visit.cluster.configs.describe_configs([resource], False, False))[resource]
    if isinstance(known, KafkaError):
        raise known
    if name not in known:
        raise Refused(f"{name[:60]}: a topic has no such setting")
    is_reset = visit.form.get("reset") == "1"
    value = None if is_reset else visit.form.get("value", "")
    kind = ConfigOperation.DELETE if is_reset else ConfigOperation.SET
    change = {resource: [AlterConfigOp(name, value, kind)]}
    outcome = (await visit.cluster.configs.incremental_alter_configs(change, False))[resource]
    if isinstance(outcome, KafkaError):
        raise refusal(outcome)
    before = known[name]
    return ChangeOutcome(
        f"/t/{topic.name}/settings",
        f"{name} is {value} now." if not is_reset else f"{name} has the value of the broker again.",
        "configs --alter",
        f"{topic.name} {name}",
        before.value if before.source is ConfigSource.DYNAMIC_TOPIC_CONFIG else None,
        value,
    )


def refusal(error: KafkaError) -> Exception:
    """A broker's refusal of a change: one that the user can mend, or the error itself."""
    name = error.error.name
    if name.startswith("INVALID_") or name in ("POLICY_VIOLATION", "TOPIC_ALREADY_EXISTS"):
        return Refused(error.message)
    return error


TOPIC_FORMS: Final = (
    ConsolePage(
        "/topics/new",
        new_topic,
        "new_topic.html",
        "New topic",
        "Topics",
        "ottla topics --create --topic NAME --partitions 3",
    ),
)
TOPIC_CHANGES: Final = (
    ConsoleChange("/topics/new", create),
    ConsoleChange("/t/{topic}/delete", delete),
    ConsoleChange("/t/{topic}/settings", change_setting),
)
