"""Checks of a broker's property file: names, values, rules, and secrets that others can read."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from ottla.cli.finding import ERROR, WARNING, Finding
from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import shown
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.cli.machine import Machine


def misspelt_settings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that are nearly settings."""
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
    """The settings of a file, as far as their names and values are valid, and the findings."""
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
    """The permissions of a property file that holds passwords."""
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
