"""The contract of features that attach to the broker, and the table of all of them.

Each feature is a folder of `ottla.extensions`, which can be deleted: nothing outside imports from
it, and the core serves without it. It is imported where the broker's settings want it, and nowhere
else. To add one: write an `Extension` in a folder of its own, and give it a row
in `EXTENSIONS`. The table is static, as a scan of entry points takes longer than the start of a
broker.

The hooks are called in the order in which they stand here, each for all features before the next
one, and for the features in the order of the table. Measures stand first, so that their APIs are
there for the checks of the others.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.config.place import found_at, is_there, wanted_by
from ottla.errors import ConfigError
from ottla.protocol.api_keys import ApiKey
from ottla.server.api import LateFamily

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.config.broker_config import BrokerConfig
    from ottla.metrics.metrics_registry import MetricsRegistry
    from ottla.server.parts import Parts


class Extension:
    """A feature of one broker; every hook does nothing by default."""

    def __init__(self, broker: Parts) -> None:
        self.broker = broker

    async def start(self) -> None:
        """Show that the broker begins: nothing but its settings is there."""

    def before_logs(self) -> None:
        """Attach to the log manager, which has loaded no log yet."""

    async def before_clients(self) -> None:
        """Read from the registry the facts that must be known before the first client comes.

        The registry is there; the settings of the cluster are read next, and logs are loaded then.
        """

    async def after_logs(self) -> None:
        """Compare the logs, which are loaded, with the registry; the controller reads it later."""

    def wrap(self) -> None:
        """Put checks or watches around handlers, or handlers into the table.

        All APIs are there but those of features that come later; no client is served yet.
        """

    def begin(self) -> None:
        """Begin work in the background: all parts of the broker are there."""

    def measure(self, registry: MetricsRegistry) -> None:
        """Show metrics; not called where nothing shows them, and later where a setting changes."""

    async def leave(self) -> None:
        """The broker has handed its leaders over and stops; the cluster still serves it."""

    def stop(self) -> None:
        """Follow the registry no longer: clients have gone, and it is closed next."""

    async def close(self, *, is_killed: bool = False) -> None:
        """Show the end: all else has ended, or the start of the broker has failed.

        Where the process of a test is killed, sockets and files are let go, and nothing is shown.
        """


EXTENSIONS: Final[dict[str, str]] = {
    "metrics.listener": "ottla.extensions.measures.measures:Measures",
    "metric.reporters": "ottla.extensions.measures.measures:Measures",
    "metric.reporters.interval.ms": "ottla.extensions.measures.measures:Measures",
    "quota.window.num": "ottla.extensions.quotas.quotas:Quotas",
    "ottla.adopt.log.dirs": "ottla.extensions.adoption.adoption:Adoption",
    "log.cleaner.enable": "ottla.extensions.cleaner.cleaner:Cleaner",
    "replica.alter.log.dirs.io.max.bytes.per.second": "ottla.extensions.moves.moves:Moves",
    "authorizer.class.name": "ottla.extensions.rights.rights:Rights",
    "principal.builder.class": "ottla.extensions.logins.own_principals:OwnPrincipals",
    "delegation.token.secret.key": "ottla.extensions.tokens.tokens:Tokens",
    "delegation.token.master.key": "ottla.extensions.tokens.tokens:Tokens",
    "ottla.audit.topic": "ottla.extensions.audit.audit:Audit",
    "first.design.listener": "ottla.extensions.first_design.first_design:FirstDesign",
    "zookeeper.connect": "ottla.extensions.remote_transactions.remote:RemoteTransactions",
}
"""The setting that wants a feature, and its class."""

MEANS_MORE: Final = frozenset({"zookeeper.connect"})
"""Settings of which a feature is only a part: without its folder the broker serves the rest."""

FAMILIES: Final[dict[str, tuple[ApiKey, ...]]] = {
    "ottla.extensions.logins.sasl_handlers:new_sasl_handlers": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    ),
    "ottla.extensions.logins.sasl_handlers:new_scram_users_handler": (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "ottla.extensions.quotas.quotas_handler:new_quotas_handler": (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
    ),
    "ottla.extensions.moves.reassignments_handler:new_reassignments_handler": (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "ottla.extensions.moves.log_dirs_handler:new_log_dirs_handler": (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
    ),
    "ottla.extensions.rights.rights:new_acls_handler": (
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    ),
    "ottla.extensions.tokens.tokens:new_tokens_handler": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
}
"""What makes the handlers of a feature's APIs at the first request.

They answer whether the feature is wanted or not, and are not told where its folder is deleted.
"""


def attach(broker: Parts) -> dict[str, Extension]:
    """The features that the settings of a broker want, by these settings."""
    config = broker.config
    found = {setting: load(setting, config) for setting in wanted(config)}
    return {setting: cls(broker) for setting, cls in found.items() if cls is not None}


def wanted(config: BrokerConfig) -> list[str]:
    """The settings of the table that have a value; of those that want the same, the first."""
    found: dict[str, str] = {}
    for setting, place in EXTENSIONS.items():
        if getattr(config, type(config).keys[setting].attribute):
            found.setdefault(place, setting)
    return list(found.values())


def load(setting: str, config: BrokerConfig) -> type[Extension] | None:
    """The class of the feature that a setting wants; its module is imported now.

    None where its folder is not there, and a default or a setting that means more has wanted it.

    Raises:
        ConfigError: the folder is not there, and the broker's file asks for the feature.
    """
    try:
        found: type[Extension] = wanted_by(setting, EXTENSIONS[setting])
    except ConfigError as error:
        if config.is_given(setting) and setting not in MEANS_MORE:
            raise
        logger.warning("%s", error.message)
        return None
    return found


def late_families(broker: Parts) -> Iterator[LateFamily]:
    """The families of APIs of all features that are there."""
    for place, keys in FAMILIES.items():
        if is_there(place):
            yield LateFamily(partial(make, place, broker), *keys)


def make(place: str, broker: Parts) -> Any:
    """The object that the function of this place makes for a broker."""
    return found_at(place)(broker)
