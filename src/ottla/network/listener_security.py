"""The layers that the security protocol of a listener puts on it: TLS, a login, both or none.

Most listeners have none: the table names the places of those that make them, which are imported
where a listener has one. A login is a feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.place import wanted_by
from ottla.runtime import Runtime
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from ottla.security.sasl import SaslListener
    from ottla.security.scram import FindToken

TLS: Final = "ottla.network.tls_context:ListenerTls"
LOGIN: Final = "ottla.extensions.logins.listener_login:new_login"


class Layers(NamedTuple):
    """The layers between the sockets of a listener and the requests of its clients."""

    tls: str = ""
    """The place of the class of a listener's TLS; none where it is empty."""
    login: str = ""
    """The place of the function that makes a listener's login; none where it is empty."""


LAYERS: Final[Mapping[str, Layers]] = {
    "PLAINTEXT": Layers(),
    "SSL": Layers(tls=TLS),
    "SASL_PLAINTEXT": Layers(login=LOGIN),
    "SASL_SSL": Layers(tls=TLS, login=LOGIN),
}
"""The layers of a listener, by its security protocol."""


class UserSettings(NamedTuple):
    """The settings of users in the registry: among them, SCRAM credentials by mechanism."""

    of: Callable[[str], Mapping[str, str]]
    names: Callable[[], Iterable[str]]
    find_token: FindToken | None = None
    """The login of a delegation token; None where there are none."""
    change_count: Callable[[], int] | None = None
    """How often they have changed; None where nobody counts."""


NO_USERS: Final = UserSettings(lambda name: {}, tuple)
"""As before any user is made: nobody can log in by SCRAM."""


class BrokerLogins:
    """The logins of all listeners of a broker; each begins with its listener, and goes with it."""

    def __init__(self, config: BrokerConfig, users: UserSettings = NO_USERS) -> None:
        self.listeners: dict[str, SaslListener] = {}
        self._users = users
        self._to_start: list[SaslListener] = []
        self.follow_listeners(config)

    def follow_listeners(self, config: BrokerConfig) -> None:
        """Have logins for listeners that were added, and no longer for those that were removed."""
        places = {
            each.listener_name: place
            for each in config.listeners
            if (place := LAYERS[each.security_protocol].login)
        }
        for name in self.listeners.keys() - places.keys():
            del self.listeners[name]
        for name in [each for each in places if each not in self.listeners]:
            new_login = wanted_by(f"listener {name}", places[name])
            login = self.listeners[name] = new_login(config, name, self._users)
            self._to_start.append(login)

    def start(self, runtime: Runtime) -> None:
        """Begin the work of the mechanisms of new listeners: keys are read again, for one."""
        while self._to_start:
            for begin in self._to_start.pop(0).on_start:
                begin(runtime)
