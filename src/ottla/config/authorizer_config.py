"""Rights: whether ACLs count, which users need none, and the rule for resources without ACLs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.known_keys import DEFAULT_PRINCIPAL_BUILDER
from ottla.config.rule import one_of
from ottla.errors import ConfigError
from ottla.structs import is_topic_name

AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Both of Kafka's names mean the same here: ACLs in the registry, at Kafka's paths."""

ENFORCE: Final = "enforce"
LOG: Final = "log"


class AuthorizerConfig(ConfigTable, group=True):
    """The authorizer of a broker, and the builder of its clients' names."""

    principal_builder_class: str | None = config_key(
        default=None,
        doc="A Python class that says who a client is, by its certificate, login, listener and "
        "address: the name of an entry point in ottla.principal_builders, module:Class, or a file "
        "and a class in it, names.py:Class. Unset, or by Kafka's own class: the name in the "
        "certificate or of the login. Other classes of Java cannot be run.",
    )

    authorizer_class_name: str = config_key(
        default="",
        rule=one_of("", *AUTHORIZERS),
        doc="The authorizer that is asked before anything is done for a client; empty, everybody "
        "may do everything. The two names mean the same: Kafka's ACLs, kept in ZooKeeper or in the "
        "registry of a single broker. Set on all brokers of a cluster or on none.",
    )
    super_users: str = config_key(
        default="",
        doc="Principals that may do everything, separated by semicolons: User:admin;User:CN=b,O=x. "
        "The brokers' own principal belongs here. Must not be set without an authorizer.",
    )
    allow_everyone_if_no_acl_found: bool = config_key(
        default=False,
        doc="Whether everybody may use a resource that no ACL is about.",
    )
    authorizer_mode: str = config_key(
        default=ENFORCE,
        rule=one_of(ENFORCE, LOG),
        importance=HIGH,
        doc="What is done about a denial: enforce refuses the request, log only writes it to the "
        "log and counts it, to see what ACLs would refuse before they do.",
    )

    ottla_audit_topic: str = config_key(
        default="",
        doc="A topic to which this broker writes who asked to change the cluster, and who was "
        "refused what, as JSON; it is created when it is first needed. Empty for none. Ottla's "
        "own setting.",
    )

    @property
    def enforces_rights(self) -> bool:
        """Whether clients are kept to their rights."""
        return bool(self.authorizer_class_name) and self.authorizer_mode != LOG

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        builder = (values["principal_builder_class"] or "").strip()
        is_own = builder not in ("", DEFAULT_PRINCIPAL_BUILDER)
        values["principal_builder_class"] = builder if is_own else None
        topic = values["ottla_audit_topic"] = values["ottla_audit_topic"].strip()
        if topic and (topic.startswith("__") or not is_topic_name(topic)):
            raise ConfigError(
                f"ottla.audit.topic={topic}: must be the name of a topic: 1 to 249 letters, "
                "digits, dots, underscores and hyphens, without two underscores at its beginning"
            )
        for principal in filter(None, map(str.strip, values["super_users"].split(";"))):
            type_, _, name = principal.partition(":")
            if not (type_ and name):
                raise ConfigError(
                    f"super.users={values['super_users']}: {principal!r} must be type:name, as "
                    "User:admin"
                )
        if values["authorizer_class_name"]:
            return
        if values["super_users"]:
            raise ConfigError(
                f"super.users={values['super_users']}: must not be set; "
                "without authorizer.class.name everybody may do everything"
            )
        if values["authorizer_mode"] != ENFORCE:
            raise ConfigError(
                f"authorizer.mode={values['authorizer_mode']}: must not be set; "
                "without authorizer.class.name nothing is denied that could be logged"
            )
