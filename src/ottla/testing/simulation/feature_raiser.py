"""Puts transaction.version 2 in force: the end of each transaction raises its epoch (KIP-890)."""

from __future__ import annotations

from typing import Final

from ottla.clients.admin.admin_client import AdminClient
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.api_versions import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.testing.simulation.workload import SimulatedClient

TIMEOUT_MS: Final = 10_000
FEATURE: Final = "transaction.version"
LEVEL: Final = 2


class FeatureRaiser(SimulatedClient):
    """Raises transaction.version, whatever it takes."""

    async def run(self) -> None:
        config = AdminConfig.parse({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin = AdminClient(self.process.runtime, config)
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=LEVEL)
        while True:
            request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
            try:
                deadline = Deadline(self.process.runtime.clock, TIMEOUT_MS)
                answer = await admin.controller(request, deadline, low=1)
                if answer.error_code == ErrorCode.NONE:
                    break
            except KafkaError:
                pass  # asked again, until there is a controller
            admin.metadata.request_update(is_urgent=True)
            await self.pause(200)
        admin.close()
        self.is_done = True
