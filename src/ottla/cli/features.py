"""`ottla features`: show the feature levels that are in force, and change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_repeated,
    bootstrap_server,
    check_action,
    key_values,
)
from ottla.cli.property_files import command_settings
from ottla.config.whole_number import number_of
from ottla.errors import KafkaError
from ottla.protocol.features import UpgradeType

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal

REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "describe": (),
    "upgrade": ("--feature",),
    "downgrade": ("--feature",),
    "disable": ("--feature",),
}
OPTIONAL: Final[dict[str, tuple[str, ...]]] = {
    "upgrade": ("--dry-run",),
    "downgrade": ("--dry-run", "--unsafe"),
    "disable": ("--dry-run", "--unsafe"),
}
PAST: Final = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}


class FeaturesCommand(Command):
    """Describes features and changes their levels."""

    name = "features"
    examples = (
        "ottla features --bootstrap-server localhost:9092 describe",
        "ottla features --bootstrap-server localhost:9092 upgrade --feature transaction.version=2",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            choices=tuple(REQUIRED),
            help=f"One of {', '.join(REQUIRED)}.",
        )
        add_bootstrap_server(parser)
        add_command_config(parser)
        add_repeated(
            parser,
            "--feature",
            "NAME=LEVEL",
            "The feature and its new level, or with disable its name; may be repeated: all of "
            "them are changed or none is.",
        )
        add_flag(parser, "--unsafe", "downgrade, disable: even if something is lost by it.")
        add_flag(parser, "--dry-run", "Only say whether the change could be made.")

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        levels = check(arguments)
        servers = bootstrap_server(arguments)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            if arguments.action == "describe":
                return describe(admin, terminal)
            return update(admin, levels, arguments, terminal)


def check(arguments: Namespace) -> dict[str, int]:
    """The new level of each feature; raises UsageError where options do not fit."""
    check_action(arguments, arguments.action, REQUIRED, OPTIONAL)
    if arguments.action == "describe":
        return {}
    if arguments.action == "disable":
        return dict.fromkeys(arguments.feature, 0)
    levels = {}
    for name, level in key_values(arguments.feature).items():
        if number_of(level, 0) is None:
            raise UsageError(f"--feature takes a name and a level, as in {name}=1, not '{level}'")
        levels[name] = int(level)
    return levels


def describe(admin: Admin, terminal: Terminal) -> int:
    """A line for each feature, as Kafka's tool prints it."""
    for name, feature in sorted(admin.describe_features().items()):
        epoch = feature.epoch if feature.epoch >= 0 else "-"
        terminal.print(
            f"Feature: {name}\tSupportedMinVersion: {feature.lowest}\t"
            f"SupportedMaxVersion: {feature.highest}\t"
            f"FinalizedVersionLevel: {feature.level}\tEpoch: {epoch}"
        )
    return 0


def update(admin: Admin, levels: dict[str, int], arguments: Namespace, terminal: Terminal) -> int:
    """Change the levels; 1, and a line for each that cannot be changed, if there is one."""
    down = UpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else UpgradeType.SAFE_DOWNGRADE
    direction = UpgradeType.UPGRADE if arguments.action == "upgrade" else down
    errors: dict[str, KafkaError | None] = dict.fromkeys(levels)
    try:
        admin.update_features(levels, direction, validate_only=arguments.dry_run)
    except KafkaError as error:
        errors.update(getattr(error, "results", dict.fromkeys(levels, error)))
    verb, done = arguments.action, PAST[arguments.action]
    for name, level in levels.items():
        to = "" if verb == "disable" else f" to {level}"
        reason = errors[name]
        if reason is not None:
            can = "Can not" if arguments.dry_run else "Could not"
            terminal.note(f"{can} {verb} {name}{to}. {reason.message}")
        elif arguments.dry_run:
            terminal.print(f"{name} can be {done}{to}.")
        else:
            terminal.print(f"{name} was {done}{to}.")
    return 1 if any(errors.values()) else 0
