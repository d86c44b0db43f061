"""The domains of a broker's MBeans."""

from __future__ import annotations

from typing import Final

SERVER: Final = "kafka.server"
NETWORK: Final = "kafka.network"
CONTROLLER: Final = "kafka.controller"
LOG: Final = "kafka.log"
