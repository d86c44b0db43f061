"""DescribeCluster (60): the brokers and the controller."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.metadata import OPERATIONS_NOT_REQUESTED
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, String, field

ENDPOINT_BROKERS: Final = 1


class DescribeClusterRequest(Request, api_key=60, flexible="0+"):
    """Ask for the members of the cluster (KIP-700).

    v1 brokers or controllers (KIP-919) · v2 fenced brokers as well (KIP-1073).
    """

    include_cluster_authorized_operations: bool = field(Boolean)
    endpoint_type: int = field(Int8, versions="1+", default=ENDPOINT_BROKERS)
    include_fenced_brokers: bool = field(Boolean, versions="2+")


class DescribeClusterBroker(Struct):
    """A member of the cluster."""

    broker_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+")
    is_fenced: bool = field(Boolean, versions="2+")


class DescribeClusterResponse(Response, api_key=60, flexible="0+"):
    """The members and the controller.

    v1 says which kind of endpoint they are (KIP-919) · v2 which are fenced (KIP-1073).
    """

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    endpoint_type: int = field(Int8, versions="1+", default=ENDPOINT_BROKERS)
    cluster_id: str = field(String)
    controller_id: int = field(Int32, default=-1)
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(Int32, default=OPERATIONS_NOT_REQUESTED)
