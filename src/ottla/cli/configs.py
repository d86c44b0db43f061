"""`ottla configs`: show and change settings of topics, brokers, groups, and quotas of clients."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_repeated,
    add_zookeeper,
    bootstrap_server_or_zookeeper,
    check_brokers,
    given,
    one_of,
    only_with,
)
from ottla.cli.output import one_line
from ottla.cli.property_files import command_settings, settings_in
from ottla.cli.scram_users import (
    alter_scram,
    describe_scram,
    scram_changes,
    scram_stored,
    without_keys,
)
from ottla.cli.table import TEXT, Row, add_format, show_rows
from ottla.cli.users import MECHANISMS
from ottla.cli.zookeeper_configs import (
    change_client,
    client_entities,
    client_settings,
    configured,
    settings_of,
)
from ottla.cli.zookeeper_session import session
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.config.config_type import DOUBLE, LONG_MAX
from ottla.config.quota_config import IP_QUOTA_TYPES, QUOTA_TYPES, format_limit, parse_limit
from ottla.config.whole_number import number_of
from ottla.protocol.configs import ConfigResourceType
from ottla.structs import ClientEntity, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Container, Iterable, Mapping

    from ottla import Admin
    from ottla.cli.terminal import Terminal
    from ottla.clients.admin.descriptions import ConfigEntry

TIMES: Final = (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
SIZES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
SHORT_OPTIONS: Final = {
    "--topic": "topics",
    "--broker": "brokers",
    "--broker-defaults": "brokers",
    "--group": "groups",
    "--user": "users",
    "--user-defaults": "users",
    "--broker-logger": "broker-loggers",
    "--client": "clients",
    "--client-defaults": "clients",
    "--ip": "ips",
    "--ip-defaults": "ips",
    "--client-metrics": "client-metrics",
}
UNITS: Final = {".ms": TIMES, ".bytes": SIZES}
ENTITY_TYPES: Final = ("topics", "brokers", "groups", "broker-loggers", "client-metrics")
CLIENT_TYPES: Final = {"users": "user", "clients": "client_id", "ips": "ip"}
"""The types whose settings are quotas, and the attributes of `ClientEntity`."""
ALL_TYPES: Final = (*ENTITY_TYPES, *CLIENT_TYPES)
KAFKA_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
TITLES: Final = {"user": "user-principal", "ip": "ip", "client_id": "client-id"}
_TAG: Final = re.compile(r"</?[a-z]+>")  # Kafka's documentation is HTML
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")


class Entity(NamedTuple):
    """Whose settings: a topic, a broker, a group, a subscription; "" is all brokers' default."""

    type: str
    name: str

    @property
    def label(self) -> str:
        return self.type.removesuffix("s")

    @property
    def title(self) -> str:
        """The name in Kafka's tool that finds its entities in ZooKeeper."""
        if self.type != "brokers":
            return f"{self.label} '{one_line(self.name)}'"
        return f"brokers '{self.name}'" if self.name else "default brokers"

    def resource(self) -> ConfigResource:
        """The entity as the admin client calls it."""
        if self.type == "client-metrics":
            return ConfigResource.client_metrics(self.name)
        return ConfigResource(ConfigResourceType[self.label.upper().replace("-", "_")], self.name)


class ConfigsCommand(Command):
    """Shows and changes the settings of topics, brokers and groups, and the quotas of clients."""

    name = "configs"
    examples = (
        "ottla configs --bootstrap-server localhost:9092 --describe --topic test",
        "ottla configs --bootstrap-server localhost:9092 --alter --entity-type topics"
        " --entity-name test --add-config retention.ms=60000,cleanup.policy=[compact,delete]",
        "ottla configs --bootstrap-server localhost:9092 --alter --entity-type clients"
        " --entity-name app --add-config producer_byte_rate=1048576,consumer_byte_rate=2097152",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_zookeeper(parser)
        add_command_config(parser)
        add_flag(parser, "--describe", "Show settings.")
        add_flag(parser, "--alter", "Change settings.")
        _add_entity(parser)
        parser.add_argument(
            "--add-config",
            metavar="K=V,K=[A,B]",
            help="Settings to make; a value with commas stands in square brackets.",
        )
        parser.add_argument(
            "--add-config-file", metavar="FILE", help="The same from a property file."
        )
        parser.add_argument(
            "--delete-config", metavar="K,K", help="Settings that go back to their defaults."
        )
        add_flag(
            parser,
            "--all",
            "Describe every setting with where its value comes from, not only those made "
            "for this topic, broker or group.",
        )
        add_flag(parser, "--force", "Accepted for older scripts: nothing is asked.")
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = one_of(arguments, ("--describe", "--alter"))
        only_with(arguments, ("--add-config", "--add-config-file", "--delete-config"), "--alter")
        only_with(arguments, ("--all",), "--describe")
        components = client_components(arguments)
        if components:
            self._run_clients(arguments, action, components, terminal)
            return 0
        kind, name = entity(arguments)
        if action == "--alter":
            if name is None:
                raise UsageError("--alter needs --entity-name or --entity-default")
            changes = Changes.of(arguments)
        elif arguments.zookeeper and not arguments.bootstrap_server and not arguments.all:
            describe_nodes(arguments, kind, name, terminal)
            return 0
        settings = command_settings(arguments)
        servers = bootstrap_server_or_zookeeper(arguments, settings)
        with terminal.admin(servers, settings) as admin:
            if action == "--alter":
                what = Entity(kind, str(name))
                check_alive(admin, what)
                alter(admin, what, changes)
                terminal.print(completed(what, as_by_zookeeper=bool(arguments.zookeeper)))
            elif arguments.format == TEXT:
                for each in entities(admin, kind, name):
                    describe(admin, each, arguments.all, terminal)
            else:
                found = entities(admin, kind, name)
                rows = [row for each in found for row in setting_rows(admin, each, arguments.all)]
                show_rows(rows, arguments.format, terminal)
        return 0

    def _run_clients(
        self,
        arguments: Namespace,
        action: str,
        components: Mapping[str, str | None],
        terminal: Terminal,
    ) -> None:
        changes = None
        if action == "--alter":
            if None in components.values():
                raise UsageError("--alter needs --entity-name or --entity-default for each type")
            wanted = Changes.of(arguments)
            if set(MECHANISMS) & {*wanted.added, *wanted.deleted}:
                _alter_scram(arguments, wanted, components, terminal)
                return
            changes = quota_changes(wanted, components)
        if arguments.zookeeper and not arguments.bootstrap_server:
            in_nodes(arguments, components, changes, terminal)
            return
        settings = command_settings(arguments)
        with terminal.admin(bootstrap_server_or_zookeeper(arguments, settings), settings) as admin:
            if changes is not None:
                alter_quotas(admin, ClientEntity(**components), changes)
                terminal.print(completed_quotas(components))
            else:
                describe_quotas(admin, components, arguments.format, terminal)
                is_of_users = components.keys() == {"user"} and components["user"] != ""
                if is_of_users and arguments.format == TEXT:
                    describe_scram(admin, components["user"], terminal)


def _add_entity(parser: ArgumentParser) -> None:
    add_repeated(
        parser,
        "--entity-type",
        "TYPE",
        "topics, brokers, groups, broker-loggers, client-metrics, users, clients or ips; users and "
        "clients may stand together.",
    )
    parser.add_argument(
        "--entity-name",
        metavar="NAME",
        dest="entity_names",
        type=named,
        action="append",
        default=[],
        help="The name of the topic, group, subscription, user or client, the id of the broker, or "
        "the address; "
        "one for each --entity-type.",
    )
    parser.add_argument(
        "--entity-default",
        dest="entity_names",
        action="append_const",
        const="",
        help="In the place of --entity-name: the default of all brokers, users, clients or ips.",
    )
    for option, kind in SHORT_OPTIONS.items():
        if option.endswith("-defaults"):
            add_flag(parser, option, f"Short for --entity-type {kind} --entity-default.")
        else:
            name = "ID" if kind in ("brokers", "broker-loggers") else "NAME"
            text = f"Short for --entity-type {kind} --entity-name {name}."
            parser.add_argument(option, metavar=name, type=named, help=text)


def named(text: str) -> str:
    """The name that an option's value is; an empty one would be that of a default, for all."""
    if not text:
        raise ArgumentTypeError("needs a name, not ''; a default has an option of its own")
    return text


def entity_parts(arguments: Namespace) -> dict[str, str | None]:
    """The types of the entity and its names: "" for a default, None for all."""
    kinds: list[str] = arguments.entity_type
    names: list[str | None] = list(arguments.entity_names)
    for kind in kinds:
        if kind not in ALL_TYPES:
            raise UsageError(f"--entity-type may be {', '.join(ALL_TYPES)}, not '{kind}'")
    if len(names) > len(kinds):
        raise UsageError("each --entity-name and --entity-default needs an --entity-type")
    pairs = list(zip(kinds, names + [None] * len(kinds), strict=False))
    for option, kind in SHORT_OPTIONS.items():
        if given(arguments, option):
            value = getattr(arguments, option.lstrip("-").replace("-", "_"))
            pairs.append((kind, "" if value is True else value))
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UsageError("the same type of entity is given twice")
    if len(found) > 1 and set(found) != {"users", "clients"}:
        raise UsageError("only users and clients may stand together")
    if not found:
        raise UsageError("--entity-type, or a short form of it as --topic or --user, is needed")
    return found


def client_components(arguments: Namespace) -> dict[str, str | None]:
    """The components of the client entity by their attributes; none for topics and the like."""
    parts = entity_parts(arguments)
    return {CLIENT_TYPES[kind]: parts[kind] for kind in CLIENT_TYPES if kind in parts}


def entity(arguments: Namespace) -> tuple[str, str | None]:
    """The type of the entity and its name: "" for the default of brokers, None for all."""
    ((kind, name),) = entity_parts(arguments).items()
    if name == "" and kind != "brokers":
        raise UsageError(f"{kind} have no --entity-default; the brokers' settings are it")
    return _checked(kind, name)


def _checked(kind: str, name: str | None) -> tuple[str, str | None]:
    if kind == "broker-loggers" and name is None:
        raise UsageError("each broker has its own loggers: --entity-name is needed, a broker's id")
    if kind in ("brokers", "broker-loggers") and name and number_of(name, 0) is None:
        raise UsageError(f"a broker is named by its id, a number, not '{name}'")
    return kind, name


class Changes(NamedTuple):
    """The changes of --alter: settings to make, and settings to take back."""

    added: dict[str, str]
    deleted: list[str]

    @classmethod
    def of(cls, arguments: Namespace) -> Changes:
        added = settings_in(arguments.add_config_file)
        added |= parse_added(arguments.add_config or "")
        deleted = [key.strip() for key in (arguments.delete_config or "").split(",") if key.strip()]
        if not added and not deleted:
            raise UsageError("--alter needs --add-config, --add-config-file or --delete-config")
        return cls(added, deleted)


def parse_added(text: str) -> dict[str, str]:
    """`k1=v1,k2=[a,b]` as a dict; the brackets only group."""
    found = {}
    for pair in _COMMA_OUTSIDE_BRACKETS.split(text) if text else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--add-config takes key=value, not '{pair}'")
        found[key.strip()] = value.strip().removeprefix("[").removesuffix("]").strip()
    return found


def entities(admin: Admin, kind: str, name: str | None) -> list[Entity]:
    """The one that is named, or all there are."""
    if name is not None:
        found = Entity(kind, name)
        check_alive(admin, found)
        return [found]
    if kind == "topics":
        return [Entity(kind, topic) for topic in sorted(admin.list_topics())]
    if kind == "groups":
        return [Entity(kind, group.group_id) for group in admin.list_groups()]
    if kind == "client-metrics":
        return [Entity(kind, each) for each in admin.list_client_metrics()]
    nodes = sorted(node.id for node in admin.describe_cluster().nodes)
    return [*(Entity(kind, str(node)) for node in nodes), Entity(kind, "")]


def check_alive(admin: Admin, what: Entity) -> None:
    """Raise CommandError for a broker that is not there: only itself knows its settings."""
    if what.type in ("brokers", "broker-loggers") and what.name:
        check_brokers([int(what.name)], [node.id for node in admin.describe_cluster().nodes])


def describe(admin: Admin, what: Entity, every: bool, terminal: Terminal) -> None:
    """Print the settings of a topic on one line, those of others one below the other."""
    settings = _settings(admin, what)
    if every:
        terminal.print(f"All configs for {what.label} {one_line(what.name)} are:")
        _print_entries(settings, terminal)
    elif what.type == "topics":
        terminal.print(f"Configs for {what.title} are {_one_line(_own(what, settings))}")
    elif what.type in ("groups", "client-metrics"):
        terminal.print(f"Dynamic configs for {what.label} {one_line(what.name)} are:")
        _print_entries(_own(what, settings), terminal)
    else:
        terminal.print(
            f"Configs for {what.label} {what.name} are:"
            if what.name
            else "Default config for brokers in the cluster are:"
        )
        _print_entries(_own(what, settings), terminal)

    if not every and not _own(what, settings):
        terminal.remark("no settings of its own; --all shows those in force")


def setting_rows(admin: Admin, what: Entity, every: bool) -> list[Row]:
    """A row for each setting: its value, the same in words, its source, and its purpose."""
    settings = _settings(admin, what, with_documentation=True)
    return [
        {
            what.label: what.name,
            "setting": entry.name,
            "value": entry.value,
            "in_words": in_words(entry.name, entry.value),
            "from": entry.source.name.lower().replace("_", " "),
            "sensitive": entry.is_sensitive,
            "does": _TAG.sub("", entry.documentation) if entry.documentation else None,
            "synonyms": [
                {"name": each.name, "value": each.value, "from": each.source.name}
                for each in entry.synonyms
            ],
        }
        for entry in (settings if every else _own(what, settings))
    ]


def in_words(name: str, value: str | None) -> str | None:
    """`7 days` for retention.ms=604800000, `1 GiB` for bytes, `never` for the longest time."""
    if value is None or not value.isdecimal():
        return None
    number = int(value)
    units = next((each for ending, each in UNITS.items() if name.endswith(ending)), None)
    if units is None or number == 0:
        return None
    if number >= LONG_MAX:
        return "never" if units is TIMES else "no limit"
    unit, length = next((each for each in units if number % each[1] == 0), units[-1])
    count = number // length
    if length == 1:
        return None
    return "1 day" if (count, unit) == (1, "days") else f"{count} {unit}"


def describe_nodes(arguments: Namespace, kind: str, name: str | None, terminal: Terminal) -> None:
    """Print the settings that ZooKeeper has of the entity, or of all entities, a line for each."""
    with session(arguments.zookeeper, arguments.log_level) as client:
        for each in configured(client, kind) if name is None else [name]:
            own = settings_of(client, kind, each)
            shown = ",".join(f"{key}={one_line(value)}" for key, value in own.items())
            terminal.print(f"Configs for {Entity(kind, each).title} are {shown}")


def quota_title(entity: ClientEntity, *, as_by_zookeeper: bool = False) -> str:
    """The name of a client entity in Kafka's tool; that of ZooKeeper leaves the article out."""
    article = "" if as_by_zookeeper else "the "
    return ", ".join(
        f"{title} '{one_line(name)}'" if name else f"{article}default {title}"
        for attribute, title in TITLES.items()
        if (name := getattr(entity, attribute)) is not None
    )


def quota_changes(
    changes: Changes, components: Mapping[str, str | None]
) -> dict[str, float | None]:
    """The limits to set, and None for those to remove; a name that is no quota is refused."""
    types = IP_QUOTA_TYPES if "ip" in components else QUOTA_TYPES
    unexpected = [key for key in (*changes.added, *changes.deleted) if key not in types]
    if unexpected:
        kind = next(kind for kind, attribute in CLIENT_TYPES.items() if attribute in components)
        raise CommandError(
            f"Only quota configs ({', '.join(types)}) can be added for '{kind}'. Unexpected config "
            f"names: Set({', '.join(unexpected)})"
        )
    found: dict[str, float | None] = {
        key: parse_limit(key, text, types) for key, text in changes.added.items()
    }
    return found | dict.fromkeys(changes.deleted)


def alter_quotas(admin: Admin, entity: ClientEntity, changes: Mapping[str, float | None]) -> None:
    """Make the changes all at once; only a limit that is there can be removed."""
    components = {
        KAFKA_TYPES[attribute]: name
        for attribute, name in entity._asdict().items()
        if name is not None
    }
    known = admin.describe_client_quotas(components, strict=True).get(entity, {})
    _refuse_missing(changes, known)
    admin.alter_client_quotas({entity: changes})


def _refuse_missing(changes: Mapping[str, float | None], known: Container[str]) -> None:
    missing = [key for key, limit in changes.items() if limit is None and key not in known]
    if missing:
        raise CommandError(f"Invalid config(s): {','.join(missing)}")


def completed_quotas(components: Mapping[str, str | None]) -> str:
    """The line of Kafka's tool after a change; of a user and a client it names one."""
    kinds = {attribute: kind for kind, attribute in CLIENT_TYPES.items()}
    for attribute, name in components.items():
        if name:
            return f"Completed updating config for {kinds[attribute].removesuffix('s')} {name}."
    return f"Completed updating default config for {kinds[next(iter(components))]} in the cluster."


def _alter_scram(
    arguments: Namespace,
    wanted: Changes,
    components: Mapping[str, str | None],
    terminal: Terminal,
) -> None:
    """Change how a user logs in by SCRAM: by a broker, or in ZooKeeper as Kafka 2.3's tool does."""
    user = components.get("user")
    if not user or len(components) > 1:
        raise CommandError("SCRAM credentials are of users, each by its own --entity-name")
    changes = scram_changes(wanted.added, wanted.deleted)
    if arguments.zookeeper and not arguments.bootstrap_server:
        target = ClientEntity(user=user)
        with session(arguments.zookeeper, arguments.log_level) as client:
            change_client(client, target, partial(scram_stored, changes))
        title = quota_title(target, as_by_zookeeper=True)
        terminal.print(f"Completed Updating config for entity: {title}.")
        return
    settings = command_settings(arguments)
    with terminal.admin(bootstrap_server_or_zookeeper(arguments, settings), settings) as admin:
        alter_scram(admin, user, changes)
    terminal.print(completed_quotas(components))


def describe_quotas(
    admin: Admin, components: Mapping[str, str | None], form: str, terminal: Terminal
) -> None:
    """Print the quotas of each entity on a line, or a row for each of them."""
    wanted = {KAFKA_TYPES[attribute]: name for attribute, name in components.items()}
    found = admin.describe_client_quotas(wanted, strict=True)
    if form != TEXT:
        rows: list[Row] = [
            {**_names(entity), "quota": key, "value": limit}
            for entity, limits in found.items()
            for key, limit in limits.items()
        ]
        show_rows(rows, form, terminal)
        return
    for entity, limits in found.items():
        shown = ", ".join(f"{key}={DOUBLE.format(limit)}" for key, limit in limits.items())
        terminal.print(f"Quota configs for {quota_title(entity)} are {shown}")
    if not found:
        terminal.remark("no quotas")


def _names(entity: ClientEntity) -> dict[str, object]:
    """The components of an entity; the default of one is written as in the registry."""
    return {
        KAFKA_TYPES[attribute]: name or "<default>"
        for attribute, name in entity._asdict().items()
        if name is not None
    }


def in_nodes(
    arguments: Namespace,
    components: Mapping[str, str | None],
    changes: Mapping[str, float | None] | None,
    terminal: Terminal,
) -> None:
    """Describe or change client entities in ZooKeeper itself, as Kafka 2.3's tool does."""
    with session(arguments.zookeeper, arguments.log_level) as client:
        if changes is not None:
            target = ClientEntity(**components)
            change_client(client, target, partial(_changed, changes))
            terminal.print(f"Completed Updating config for entity: {_title(target)}.")
            return
        is_of_all_users = components == {"user": None}
        for each in client_entities(client, components):
            own = without_keys(client_settings(client, each))
            shown = ",".join(f"{key}={value}" for key, value in own.items())
            if own or not is_of_all_users:
                terminal.print(f"Configs for {_title(each)} are {shown}")


def _title(entity: ClientEntity) -> str:
    return quota_title(entity, as_by_zookeeper=True)


def _changed(changes: Mapping[str, float | None], before: dict[str, str]) -> dict[str, str]:
    """The stored settings of an entity after the changes."""
    _refuse_missing(changes, before)
    after = dict(before)
    for key, limit in changes.items():
        if limit is None:
            del after[key]
        else:
            after[key] = format_limit(key, limit)
    return after


def _own(what: Entity, settings: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    """The settings that were made for this entity."""
    if what.type == "client-metrics":
        wanted = "DYNAMIC_CLIENT_METRICS_CONFIG"
    elif what.type != "brokers":
        wanted = f"DYNAMIC_{what.label.upper()}_CONFIG".replace("-", "_")
    else:
        wanted = "DYNAMIC_BROKER_CONFIG" if what.name else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return [entry for entry in settings if entry.source.name == wanted]


def _one_line(entries: Iterable[ConfigEntry]) -> str:
    return ",".join(f"{entry.name}={one_line(str(entry.value))}" for entry in entries)


def _settings(admin: Admin, what: Entity, *, with_documentation: bool = False) -> list[ConfigEntry]:
    resource = what.resource()
    described = admin.describe_configs(
        [resource], include_synonyms=True, include_documentation=with_documentation
    )
    return list(described[resource].values())


def _print_entries(entries: Iterable[ConfigEntry], terminal: Terminal) -> None:
    for entry in entries:
        synonyms = ", ".join(
            f"{synonym.source.name}:{synonym.name}={_shown(synonym.value)}"
            for synonym in entry.synonyms
        )
        sensitive = str(entry.is_sensitive).lower()
        terminal.print(
            f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"
        )


def _shown(value: str | None) -> str:
    return "null" if value is None else one_line(value)


def alter(admin: Admin, what: Entity, changes: Changes) -> None:
    """Make the changes all at once."""
    if changes.deleted:
        _check_deleted(admin, what, changes.deleted)
    operations = [AlterConfigOp(key, value, "SET") for key, value in changes.added.items()]
    operations += [AlterConfigOp(key, None, "DELETE") for key in changes.deleted]
    admin.incremental_alter_configs({what.resource(): operations})


def completed(what: Entity, *, as_by_zookeeper: bool) -> str:
    """The line of Kafka's tool after a change; for brokers it differs from that for ZooKeeper."""
    if what.type == "topics" or as_by_zookeeper:
        return f"Completed Updating config for entity: {what.title}."
    if what.type in ("groups", "client-metrics"):
        return f"Completed updating config for {what.label} {what.name}."
    if what.name:
        return f"Completed updating config for {what.label}: {what.name}."
    return "Completed updating default config for brokers in the cluster,"


def _check_deleted(admin: Admin, what: Entity, keys: list[str]) -> None:
    """Refuse to take back a setting that was not set: a typing mistake must not pass in silence."""
    known = {entry.name for entry in _settings(admin, what) if entry.source.name.startswith("DYN")}
    missing = [key for key in keys if key not in known]
    if missing:
        raise CommandError(
            f"Invalid config(s): {','.join(missing)} ({what.label} '{what.name}' has no such "
            "settings of its own)"
        )
