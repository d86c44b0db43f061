"""Which requests an HTTP listener refuses: those of foreign pages, and those without a password."""

from __future__ import annotations

from base64 import b64encode

import pytest

from ottla.config.config_type import Password
from ottla.security.http_guard import HttpGuard

LOOPBACK, ELSEWHERE = "127.0.0.1", "192.0.2.7"
OWN_HOSTS = ("127.0.0.1:8083", "localhost:8083", "LocalHost", "[::1]:8083", "a.localhost", "box:1")
FOREIGN_HOSTS = ("evil.example", "evil.example:8083", "localhost.evil.example", "127.0.0.1.nip.io")


@pytest.fixture
def guard() -> HttpGuard:
    """A listener called box, which pages of http://ui.example may use."""
    return HttpGuard(names=["box"], origins=["http://ui.example"])


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("local_host", [LOOPBACK, "::1", ELSEWHERE])
@pytest.mark.parametrize("host", OWN_HOSTS)
def test_programs_may_ask(guard: HttpGuard, method: str, local_host: str, host: str) -> None:
    """Curl, Prometheus and Ottla's own tools send no header that only browsers send."""
    assert guard.refusal(method, {"Host": host}, local_host) is None


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_name_that_was_made_to_resolve_to_loopback_is_refused(guard: HttpGuard, host: str) -> None:
    """A page under such a name counts as the same site: only its name gives it away."""
    for method in ("GET", "POST"):
        refused = guard.refusal(method, {"Host": host}, LOOPBACK)
        assert refused is not None
        assert refused.status == 403
        assert "is no name of this listener" in refused.message


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_program_may_use_any_name_of_a_listener_for_other_machines(
    guard: HttpGuard, host: str
) -> None:
    """A service in a cluster has names that it does not know; a browser tells that it is one."""
    assert guard.refusal("GET", {"Host": host}, ELSEWHERE) is None
    for header in ({"Origin": f"http://{host}"}, {"Sec-Fetch-Site": "same-origin"}):
        assert guard.refusal("POST", {"Host": host, **header}, ELSEWHERE) is not None


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost:8083.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_page_of_another_site_may_not_ask(
    guard: HttpGuard, method: str, headers: dict[str, str]
) -> None:
    """A page that a developer serves on another port of the same machine is refused, too."""
    refused = guard.refusal(method, {"Host": "localhost:8083", **headers}, LOOPBACK)

    assert refused is not None
    assert refused.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:8083", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://ui.example", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_page_of_the_listener_itself_or_of_an_allowed_site_may_ask(
    guard: HttpGuard, headers: dict[str, str]
) -> None:
    """An address typed into the browser is served as well."""
    assert guard.refusal("POST", {"Host": "localhost:8083", **headers}, LOOPBACK) is None


def test_any_site_may_be_allowed_but_not_with_the_browsers_password() -> None:
    """With * nobody has checked the sites, and a page would act with its user's password."""
    guard = HttpGuard(origins=["*", "http://*.example"])

    assert guard.allows_origin("http://evil.test")
    assert not guard.allows_credentials("http://evil.test")
    assert guard.allows_credentials("http://ui.example")


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        (f"Basic {b64encode(b'ann:secret').decode()}", True),
        (f"Basic {b64encode(b'ann:guess').decode()}", False),
        (f"Bearer {b64encode(b'ann:secret').decode()}", False),
        ("Basic ann:secret", False),
        ("", False),
        (None, False),
    ],
)
def test_user_and_password_are_compared(header: str | None, is_known: bool) -> None:
    """A malformed header is a wrong password."""
    headers = {} if header is None else {"Authorization": header}

    assert HttpGuard("ann", Password("secret")).knows(headers) == is_known
    assert HttpGuard().knows(headers)


def test_link_on_another_site_may_be_followed(guard: HttpGuard) -> None:
    """A person sees the answer then, and not the page."""
    headers = {"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    assert guard.refusal("GET", headers, LOOPBACK) is None
    assert guard.refusal("POST", headers, LOOPBACK) is not None
