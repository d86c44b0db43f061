"""Keeps HTTP listeners from callers that may not ask: without a password, or by a foreign web page.

A browser sends the requests of any page from the machine of its user, so that listening at loopback
alone does not keep them out. It names the page's site in `Origin`, and in `Sec-Fetch-Site` whether
it is another one. A page whose own name is made to resolve to 127.0.0.1 (DNS rebinding) counts as
the same site, and is known only by its name in `Host`.
"""

from __future__ import annotations

import hmac
from asyncio import BaseTransport
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from ottla.config.config_type import Password
from ottla.structs import NamedTuple

FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
"""The values of `Sec-Fetch-Site` for pages of another origin than this one."""


class GuardRefusal(NamedTuple):
    """The HTTP status and the text of an answer that refuses a request."""

    status: int
    message: str


class HttpGuard:
    """The rules of one listener.

    `user` and `password` are those of HTTP Basic, if any; `names` are host names by which it may be
    called besides localhost and addresses; `origins` are patterns of sites whose pages may ask.
    """

    def __init__(
        self,
        user: str | None = None,
        password: Password | None = None,
        names: Collection[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        self._wanted = None
        if user is not None:
            assert password is not None, "the settings belong together"
            self._wanted = f"{user}:{password.value}".encode()
        self._names = frozenset(name.lower() for name in names)
        self._origins = origins

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has the user and password, where they are asked for."""
        if self._wanted is None:
            return True
        return hmac.compare_digest(_credentials(headers), self._wanted)

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of another site may ask and read the answers (CORS)."""
        return any(fnmatchcase(origin, each) for each in self._origins)

    def allows_credentials(self, origin: str) -> bool:
        """Whether they may do so with the user and password that the browser has.

        "*" stands for sites that nobody has looked at, and never allows it.
        """
        return any(fnmatchcase(origin, each) for each in self._origins if each != "*")

    def refusal(
        self, method: str, headers: Mapping[str, str], local_host: str
    ) -> GuardRefusal | None:
        """Why a request is refused as one of a foreign page, or None.

        `local_host` is the address at which it arrived.
        """
        host = headers.get("Host", "")
        name = _host_name(host)
        is_browser = "Origin" in headers or "Sec-Fetch-Site" in headers
        if (is_browser or is_loopback(local_host)) and not self._is_own_name(name):
            return GuardRefusal(403, f"Host {name!r} is no name of this listener")
        if method == "GET" and headers.get("Sec-Fetch-Mode") == "navigate":
            return None  # a person follows a link
        origin = headers.get("Origin")
        site = headers.get("Sec-Fetch-Site", "")
        if origin is None and site not in FOREIGN_SITES:
            return None
        if origin is not None and (_is_of_host(origin, host) or self.allows_origin(origin)):
            return None
        return GuardRefusal(403, f"pages of {origin or 'other sites'} may not ask")

    def _is_own_name(self, name: str) -> bool:
        if name in ("", "localhost") or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def local_host(transport: BaseTransport | None) -> str:
    """The address at which the requests of a connection arrive; "" where it has none."""
    address = None if transport is None else transport.get_extra_info("sockname")
    return str(address[0]) if isinstance(address, tuple) else ""


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and the brackets of IPv6."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_of_host(origin: str, host: str) -> bool:
    """Whether an origin, such as http://localhost:8083, is that of the listener itself."""
    return origin.partition("://")[2].lower() == host.lower() != ""


def is_loopback(address: str) -> bool:
    """Whether only programs of this machine reach an address; False for a name."""
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _credentials(headers: Mapping[str, str]) -> bytes:
    """User and password of HTTP Basic as sent; nothing where the header is missing or malformed."""
    scheme, _, encoded = headers.get("Authorization", "").partition(" ")
    try:
        return b64decode(encoded, validate=True) if scheme.lower() == "basic" else b""
    except ValueError:
        return b""
