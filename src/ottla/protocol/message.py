"""Messages: the class bodies of this folder become slotted objects with codecs.

A `Struct` is a part of messages; a `Message` stands alone and knows its versions; a `Request` has
an API key and a `Response` that answers it. Objects are mutable and compare by value. `encode`
and `decode` refuse fields that a version cannot express: the first with LocalProtocolError (our
fault), the second with RemoteProtocolError (the peer's).
"""

from __future__ import annotations

import struct
from importlib import import_module
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from ottla.errors import ErrorCode, LocalProtocolError, ProtocolError, RemoteProtocolError
from ottla.protocol.api_keys import MESSAGES, ApiKey
from ottla.protocol.types import (
    BYTES_LIKE,
    NEWEST,
    NONE,
    UNLIMITED,
    Buffer,
    Part,
    Records,
    StructType,
    Versions,
)

if TYPE_CHECKING:
    from ottla.protocol.codegen import FunctionSource
    from ottla.runtime.scheduler import Work

# The errors of generated code for bytes, or values, that do not fit.
DECODE_FAULTS: Final = (ValueError, IndexError, struct.error, OverflowError, MemoryError)
ENCODE_FAULTS: Final = (ValueError, struct.error, OverflowError, AttributeError, TypeError)
VERSION: Final = Layout(">h")
LONG_VALUE_BYTES: Final = 16 * 1024
IN_SLICES: Final = 1 << 16
"""Added to a version, which has 15 bits."""


class Struct(metaclass=StructType):
    """A group of fields that occurs inside messages."""

    def __init__(self, **values: Any) -> None:
        _construct_first(self, **values)

    def __init_subclass__(cls) -> None:
        # Each class replaces its own: with that of a base it would have the fields of the base.
        cls.__init__ = _construct_first  # type: ignore[method-assign]

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        names = (field.name for field in type(self).fields)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]  # its fields change

    def __repr__(self) -> str:
        shown = []
        for field in type(self).fields:
            value = getattr(self, field.name)
            if field.type is Records and value is not None:
                shown.append(f"{field.name}=<records>")
            elif value != ([] if field.is_list else field.default):
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _construct_first(self: Struct, **values: Any) -> None:
    """Compile the constructor of a class when its first object is made.

    Compiling that of every class would double the time that importing takes.
    """
    from ottla.protocol.codegen import constructor

    cls = type(self)
    cls.__init__ = constructor(cls)  # type: ignore[method-assign]  # as said above
    cls.__init__(self, **values)


class Message(Struct):
    """A struct that stands alone, with the range of its versions and of its flexible ones.

    With `reads_newer` a reader takes the fields that it knows of a newer version and ignores the
    rest of it, as the consumer protocol demands. With `ignores_rest`, as for all requests and
    responses, bytes after the last field are no error: some clients send them, and Kafka ignores
    them.
    """

    versions: ClassVar[Versions] = NONE
    flexible: ClassVar[Versions] = NONE
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    first_flexible_version: ClassVar[int]
    reads_newer: ClassVar[bool] = False
    ignores_rest: ClassVar[bool] = False
    encoders: ClassVar[Codecs]
    decoders: ClassVar[Codecs]

    def __init_subclass__(
        cls,
        *,
        versions: str = "none",
        flexible: str = "none",
        reads_newer: bool = False,
        ignores_rest: bool = False,
    ) -> None:
        super().__init_subclass__()
        cls.versions = Versions.parse(versions)
        cls.flexible = Versions.parse(flexible)
        cls.min_version, cls.max_version = cls.versions
        cls.first_flexible_version = cls.flexible.first if cls.flexible != NONE else NEWEST
        cls.reads_newer = reads_newer
        cls.ignores_rest = reads_newer or ignores_rest
        cls.encoders = Codecs(cls, "encode")
        cls.decoders = Codecs(cls, "decode")


class Codecs(dict[int, Any]):
    """The codec functions of a message in one direction by version, made when first asked for.

    At `version + IN_SLICES` is the same as a generator, which pauses after each slice of its work.
    """

    def __init__(self, message: type[Message], direction: str) -> None:
        super().__init__()
        self.message = message
        self.direction = direction

    def __missing__(self, key: int) -> Any:
        message = self.message
        version = key - IN_SLICES if key >= IN_SLICES else key
        if version not in message.versions:
            error = LocalProtocolError if self.direction == "encode" else RemoteProtocolError
            raise error(
                f"{message.__name__} has versions {message.versions}, not {version}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        slices = " in slices" if key >= IN_SLICES else ""
        self[key] = codec = self._source(version, bool(slices)).compile(
            f"<ottla {self.direction} {message.__name__} v{version}{slices}>"
        )
        return codec

    def _source(self, version: int, in_slices: bool) -> FunctionSource:
        """`encode(m, out, parts) -> last`, or `decode(data, pos, left) -> message`."""
        if self.direction == "encode":
            from ottla.protocol.encoder import EncoderSource  # both only where a codec is missing

            return EncoderSource(self.message, version, in_slices)
        from ottla.protocol.decoder import DecoderSource

        return DecoderSource(self.message, version, in_slices)


def of_table(api_key: int | None) -> dict[str, Any]:
    """The versions of an API's messages, as the table of all has them."""
    return {} if api_key is None else {"versions": MESSAGES[api_key][1]}


def versions_of(api_key: int) -> Versions:
    """The versions of an API's messages, which need not be imported."""
    return Versions.parse(MESSAGES[api_key][1])


class Request(Message):
    """A request of a client, under an API key."""

    api_key: ClassVar[ApiKey]
    response_class: ClassVar[type[Response]]

    def __init_subclass__(cls, *, api_key: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**of_table(api_key), ignores_rest=True, **options)
        if api_key is not None:
            cls.api_key = ApiKey(api_key)
            REQUESTS[api_key] = cls


class Response(Message):
    """The response of a broker to the request of the same API key; defined after it.

    ApiVersions `answers_unknown_versions`: in v0, and never behind a flexible header, so that a
    client of any version can read the answer (KIP-511).
    """

    api_key: ClassVar[ApiKey]
    answers_unknown_versions: ClassVar[bool]
    first_flexible_header: ClassVar[int]

    def __init_subclass__(
        cls, *, api_key: int | None = None, answers_unknown_versions: bool = False, **options: Any
    ) -> None:
        super().__init_subclass__(**of_table(api_key), ignores_rest=True, **options)
        cls.answers_unknown_versions = answers_unknown_versions
        cls.first_flexible_header = (
            NEWEST if answers_unknown_versions else cls.first_flexible_version
        )
        if api_key is not None:
            cls.api_key = ApiKey(api_key)
            REQUESTS[api_key].response_class = cls


REQUESTS: Final[dict[int, type[Request]]] = {}

MessageT = TypeVar("MessageT", bound=Message)


def request_class(api_key: int) -> type[Request]:
    """The request of an API key; the module that defines it is imported when first needed."""
    found = REQUESTS.get(api_key)
    if found is not None:
        return found
    if api_key not in MESSAGES:
        raise RemoteProtocolError(
            f"no request has the API key {api_key}", ErrorCode.UNSUPPORTED_VERSION
        )
    import_module(f"ottla.protocol.{MESSAGES[api_key][0]}")
    return REQUESTS[api_key]


def error_response(
    request: type[Request], version: int, code: ErrorCode, message: str | None = None
) -> Response | None:
    """The answer that has only this error; None where a version has no place for one."""
    response = request.response_class()
    names = {field.name for field in type(response).fields if version in field.versions}
    if "error_code" not in names:
        return None
    setattr(response, "error_code", int(code))  # noqa: B010 - no field of every response
    if "error_message" in names:
        setattr(response, "error_message", message)  # noqa: B010 - likewise
    return response


def decode(
    cls: type[MessageT], version: int, buffer: Buffer, position: int = 0, most: int = UNLIMITED
) -> MessageT:
    """The message that fills `buffer` from `position` on; records are views of the buffer.

    Its arrays have at most so many elements, all together.
    """
    try:
        message: MessageT = cls.decoders[version](buffer, position, most)
    except DECODE_FAULTS as fault:
        raise refusal(cls, version, fault) from fault
    return message


def decode_in_slices(
    cls: type[MessageT], version: int, buffer: Buffer, position: int, most: int = UNLIMITED
) -> Work[MessageT]:
    """The same with a pause after each slice of the work; the buffer is needed for the first."""
    slices = cls.decoders[version + IN_SLICES](buffer, position, most)
    try:
        message: MessageT = yield from slices
    except DECODE_FAULTS as fault:
        raise refusal(cls, version, fault) from fault
    return message


LONGEST_SHOWN: Final = 100
"""Letters of a text that an error shows."""


def refusal(
    cls: type[Message],
    version: int,
    fault: Exception,
    error: type[ProtocolError] = RemoteProtocolError,
) -> ProtocolError:
    """The error to raise for `fault`: names message, version, field and rule."""
    from ottla.protocol.codegen import field_at_fault

    rule = str(fault)
    if error is RemoteProtocolError and isinstance(fault, IndexError | struct.error):
        rule = "it ends too early"
    elif "NoneType" in rule:
        rule = "null where a value is needed"
    elif isinstance(fault, UnicodeEncodeError):
        rule = f"{fault.object[:LONGEST_SHOWN]!r} is no text of UTF-8"
    return error(
        ": ".join(filter(None, (f"{cls.__name__} v{version}", field_at_fault(fault), rule)))
    )


def encode_parts(message: Message, version: int, out: bytearray) -> list[Part]:
    """The message after the bytes that `out` has already, in parts to be sent in order."""
    parts: list[Part] = []
    try:
        last = type(message).encoders[version](message, out, parts)
    except ENCODE_FAULTS as fault:
        raise refusal(type(message), version, fault, LocalProtocolError) from fault
    if last:
        parts.append(last)
    return parts


def encode(message: Message, version: int) -> bytes:
    """The bytes of the message; file regions in it are read."""
    return join(encode_parts(message, version, bytearray()))


def join(parts: list[Part]) -> bytes:
    """The parts in one piece; file regions are read."""
    if len(parts) == 1 and isinstance(parts[0], BYTES_LIKE):
        return bytes(parts[0])
    return b"".join([part if isinstance(part, BYTES_LIKE) else part.read() for part in parts])


def encode_versioned(message: Message, version: int) -> bytes:
    """The message with its version in front, as it is embedded in other data."""
    return join(encode_parts(message, version, bytearray(VERSION.pack(version))))


def encode_versioned_in_slices(message: Message, version: int) -> Work[bytes]:
    """The same, with a pause after each slice of the work."""
    return encode_in_slices(message, version, VERSION.pack(version))


def encode_in_slices(message: Message, version: int, front: bytes = b"") -> Work[bytes]:
    """The bytes of the message behind these, with a pause after each slice of the work."""
    out, parts = bytearray(front), list[Part]()
    try:
        last = yield from type(message).encoders[version + IN_SLICES](message, out, parts)
    except ENCODE_FAULTS as fault:
        raise refusal(type(message), version, fault, LocalProtocolError) from fault
    return join([*parts, last])


def decode_versioned(cls: type[MessageT], buffer: Buffer) -> MessageT:
    """The message after the version that `buffer` begins with."""
    return decode(cls, _version_in(cls, buffer), buffer, VERSION.size)


def decode_versioned_in_slices(cls: type[MessageT], buffer: Buffer) -> Work[MessageT]:
    """The same, with a pause after each slice of the work; short ones have none."""
    if len(buffer) < LONG_VALUE_BYTES:
        return decode_versioned(cls, buffer)
    return (yield from decode_in_slices(cls, _version_in(cls, buffer), buffer, VERSION.size))


def _version_in(cls: type[Message], buffer: Buffer) -> int:
    if len(buffer) < VERSION.size:
        raise RemoteProtocolError(f"{cls.__name__}: it ends before its version")
    (version,) = VERSION.unpack_from(buffer)
    return min(version, cls.max_version) if cls.reads_newer else int(version)
