"""`ottla doctor`: finds faults of a host, a property file or a cluster, and says how to mend them.

A check is a generator of findings. Those in `AT_START` read a few small files and are made at each
start of a broker as well; the others write, connect or resolve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.cluster_checks import cluster
from ottla.cli.command import Command
from ottla.cli.finding import ERROR, Finding
from ottla.cli.host_checks import ON_DEMAND, examine
from ottla.cli.machine import Machine
from ottla.cli.options import add_bootstrap_server, add_command_config
from ottla.cli.property_files import (
    add_overrides,
    add_property_file,
    command_settings,
    load_properties,
    server_settings,
)
from ottla.cli.setting_checks import parsed, rules, secrets_in
from ottla.cli.table import TEXT, add_format, show_rows

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal


class DoctorCommand(Command):
    """Examines this host, a broker's property file and, if it is named, a running cluster."""

    name = "doctor"
    examples = (
        "ottla doctor config/server.properties",
        "ottla doctor config/server.properties --bootstrap-server localhost:9092 --format json",
    )

    def __init__(self, host: Machine | None = None) -> None:
        self.host = host or Machine()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_property_file(parser, "SERVER.PROPERTIES", "The broker's property file.")
        add_overrides(parser, "A setting that wins over the property file; may be repeated.")
        add_bootstrap_server(parser)
        add_command_config(parser)
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        settings = server_settings(arguments)
        config, found = parsed(settings)
        found += examine(self.host, config, (*ON_DEMAND, rules))
        if path := arguments.config or arguments.file:
            found += secrets_in(path, load_properties(path))
        if arguments.bootstrap_server:
            servers, own = arguments.bootstrap_server, command_settings(arguments)
            with terminal.admin(servers, own) as admin:
                found += cluster(admin, self.host)
        found.sort(key=lambda finding: finding.severity != ERROR)
        if arguments.format != TEXT:
            show_rows([each._asdict() for each in found], arguments.format, terminal)
        else:
            print_findings(found, terminal)
        errors = sum(each.severity == ERROR for each in found)
        return 2 if errors else 1 if found else 0


def print_findings(found: list[Finding], terminal: Terminal) -> None:
    """A paragraph for each finding, and a last line that counts them."""
    for each in found:
        terminal.print(f"{each.severity.upper():<9}{each.check}: {each.found}")
        terminal.print(f"         should be: {each.threshold}")
        terminal.print(f"         why:       {each.why}")
        terminal.print(f"         mend:      {each.mend}")
        terminal.print()
    errors = sum(each.severity == ERROR for each in found)
    terminal.print(f"{errors} errors, {len(found) - errors} warnings")
