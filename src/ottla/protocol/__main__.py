"""Look into the protocol: `python -m ottla.protocol list`, or `show ProduceRequest 9`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from ottla.protocol.api_keys import MESSAGES
from ottla.protocol.decoder import DecoderSource
from ottla.protocol.encoder import EncoderSource
from ottla.protocol.message import Message, Request, Response, request_class

EMBEDDED = ("consumer_protocol", "metadata_records", "offsets_topic", "transaction_log")


def messages() -> dict[str, type[Message]]:
    """Every message by name; forms of one that another room keeps are not messages of their own."""
    for module in sorted({*(module for module, _ in MESSAGES.values()), *EMBEDDED}):
        import_module(f"ottla.protocol.{module}")
    found = [cls for cls in _subclasses(Message) if cls not in (Request, Response)]
    return {cls.__name__: cls for cls in found if cls.__module__.startswith("ottla.protocol.")}


def _subclasses(cls: type[Message]) -> Iterator[type[Message]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def api_table() -> str:
    """The APIs that have messages: key, name, versions, and from which version on flexible."""
    lines = [f"{'KEY':>3}  {'API':<25} {'VERSIONS':<9} {'FLEXIBLE':<9} MODULE"]
    for key in sorted(MESSAGES):
        cls = request_class(key)
        name = cls.__name__.removesuffix("Request")
        module = cls.__module__.removeprefix("ottla.")
        lines.append(f"{key:>3}  {name:<25} {cls.versions!s:<9} {cls.flexible!s:<9} {module}")
    return "\n".join(lines)


def generated_source(cls: type[Message], version: int) -> str:
    """The functions that read and write one version of a message."""
    return f"{DecoderSource(cls, version).text()}\n\n{EncoderSource(cls, version).text()}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ottla.protocol", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the table of APIs")
    show = commands.add_parser("show", help="print the code generated for a message")
    show.add_argument("message", help="for example ProduceRequest")
    show.add_argument("version", type=int)
    options = parser.parse_args(arguments)
    if options.command == "list":
        print(api_table())
        return 0
    cls = messages().get(options.message)
    if cls is None:
        parser.error(f"there is no message {options.message}; one of {', '.join(messages())}")
    if options.version not in cls.versions:
        parser.error(f"{options.message} has versions {cls.versions}, not {options.version}")
    print(generated_source(cls, options.version), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
