"""Features: the finalized levels of the cluster, and the levels that a broker supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.clients.network_client import response_error
from ottla.network.node_connection import SOFTWARE_NAME
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.features import (
    FIRST_VERSION_WITH_DIRECTION,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from ottla.structs import NamedTuple
from ottla.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.errors import KafkaError
    from ottla.runtime.timing import Deadline


NO_LEVEL = 0


class FeatureDescription(NamedTuple):
    """The levels that a broker supports, and the finalized one; 0 is none. The epoch may be -1."""

    lowest: int
    highest: int
    level: int
    epoch: int


class FeatureAdmin:
    """Requests about features; changes go to the controller."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_features(self) -> dict[str, FeatureDescription]:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )

        async def attempt(deadline: Deadline) -> ApiVersionsResponse:
            return cast("ApiVersionsResponse", await self._admin.any_broker(request, deadline))

        answer = await self._admin.until_done(attempt)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return {
            each.name: FeatureDescription(
                each.min_version,
                each.max_version,
                levels.get(each.name, NO_LEVEL),
                answer.finalized_features_epoch,
            )
            for each in answer.supported_features
        }

    async def update_features(
        self, levels: Mapping[str, int], direction: UpgradeType, validate_only: bool
    ) -> dict[str, KafkaError | None]:
        request = UpdateFeaturesRequest(
            timeout_ms=self._admin.config.request_timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=direction)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )

        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            answer = await self._admin.controller(
                request, deadline, low=FIRST_VERSION_WITH_DIRECTION
            )
            response = cast("UpdateFeaturesResponse", answer)
            error = response_error(response.error_code, "features", response.error_message)
            results: dict[str, KafkaError | None] = dict.fromkeys(levels, error)
            for each in response.results:
                what = f"feature {each.feature}"
                results[each.feature] = error or response_error(
                    each.error_code, what, each.error_message
                )
            return results

        return await self._admin.for_each(levels, attempt)
