"""The owner of an X.509 certificate, with its name as Java writes it, and the time until it ends.

OpenSSL has verified a certificate before it is read here, so that only the fields that a broker
works with are read. Names are written by the rules of RFC 2253 in the way of Java's
`X500Principal.getName()`, letter by letter: ACLs and mapping rules that were made for Kafka must
match.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Self

from ottla.structs import NamedTuple

SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 gives names to; Java writes all others by their numbers."""

MAX_NAME_BYTES: Final = 1024
MAX_ATTRIBUTES: Final = 24
"""Of a name: mapping rules look for the parts of it, in time that grows by a power of their count,
and a name is kept with each connection. X.509's own bounds of single values are 64 to 128."""

_OID: Final = 0x06
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_OCTET_STRING: Final = 0x04
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString and other types that Java takes for text."""

_ALTERNATIVE_NAMES: Final = b"\x55\x1d\x11"
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class Certificate(NamedTuple):
    """The fields of a certificate that are used here."""

    subject: str
    """The distinguished name, most specific part first."""

    not_after_ms: int
    """The last moment of its validity, in milliseconds since 1970."""

    alternative_names: frozenset[bytes]
    """Hosts and addresses of the extension subjectAltName, as they are encoded."""

    @classmethod
    def parse(cls, der: bytes) -> Self:
        """Read a certificate in DER.

        Raises:
            ValueError: it is not one.
        """
        try:
            (whole,) = elements(der)
            body, *_ = elements(whole.content)
            fields = [each for each in elements(body.content) if each.tag != _VERSION]
            _serial, _signature, _issuer, validity, subject, *rest = fields
            _, not_after = elements(validity.content)
            return cls(
                distinguished_name(subject.whole), _time_ms(not_after), _alternative_names(rest)
            )
        except ValueError as error:
            raise ValueError(f"this is not an X.509 certificate: {error}") from None


class Element(NamedTuple):
    """A value in DER: its tag, its content, and its bytes with tag and length."""

    tag: int
    content: bytes
    whole: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The values that stand one after the other in `data`; ValueError where one is cut off."""
    start = 0
    while start < len(data):
        if start + 2 > len(data) or data[start] & 0x1F == 0x1F:
            raise ValueError("DER ends within a value, or has a tag that certificates do not have")
        length, begin = data[start + 1], start + 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("DER has a length that is not definite, or too large")
            length, begin = int.from_bytes(data[begin : begin + count]), begin + count
        end = begin + length
        if end > len(data):
            raise ValueError("DER ends within a value")
        yield Element(data[start], data[begin:end], data[start:end])
        start = end


def distinguished_name(der: bytes) -> str:
    """A Name in DER as Java writes it: the last of its parts first, commas without blanks.

    Raises:
        ValueError: it is none, or longer than names are.
    """
    if len(der) > MAX_NAME_BYTES:
        raise ValueError(f"a name of {len(der)} bytes: it may have {MAX_NAME_BYTES}")
    (name,) = elements(der)
    parts = [[*elements(part.content)] for part in elements(name.content)]
    if sum(map(len, parts)) > MAX_ATTRIBUTES:
        raise ValueError(f"a name has more than {MAX_ATTRIBUTES} attributes")
    return ",".join("+".join(map(_attribute, part)) for part in reversed(parts))


def _attribute(pair: Element) -> str:
    key, value = elements(pair.content)
    if key.tag != _OID:
        raise ValueError("an attribute of a name has no type")
    number = _dotted(key.content)
    short = SHORT_NAMES.get(number)
    if short is None or value.tag not in _TEXT_TAGS:
        return f"{short or number}=#{value.whole.hex()}"
    return f"{short}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """The value with backslashes before characters of meaning in names, and outer blanks."""
    begin = len(text) - len(text.lstrip(" \r"))
    end = len(text.rstrip(" \r"))
    return "".join(
        ("\\" if each in _ESCAPED or not begin <= index < end else "") + each
        for index, each in enumerate(text)
    ).replace("\0", "\\00")


def _dotted(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first, *rest = numbers or [0]
    root = min(first // 40, 2)
    return ".".join(map(str, (root, first - 40 * root, *rest)))


def _time_ms(moment: Element) -> int:
    text = moment.content.decode("ascii")
    if moment.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    parsed = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(parsed.timestamp()) * 1000


def _alternative_names(fields: list[Element]) -> frozenset[bytes]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        (extensions,) = elements(field.content)
        for extension in elements(extensions.content):
            key, *_, value = elements(extension.content)
            if key.content == _ALTERNATIVE_NAMES and value.tag == _OCTET_STRING:
                (names,) = elements(value.content)
                return frozenset(each.whole for each in elements(names.content))
    return frozenset()
