"""The calls of a controller: `Controller` for nodes of the cluster, `Admin` for administrators.

Every handler takes a request and the call's context, asks the authorizer, and leaves the decision to the
core. What changes something, and what must be as new as the last change, is answered by the active controller
alone; others raise `NotControllerError`, which names it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.active import ActiveController
from tailrace.cluster.controller.core.cluster import describe_cluster
from tailrace.cluster.controller.core.config_alter import alter_configs
from tailrace.cluster.controller.core.config_describe import describe_configs
from tailrace.cluster.controller.core.configs import node_setting
from tailrace.cluster.controller.core.controllers import register_controller
from tailrace.cluster.controller.core.election import elect_leaders
from tailrace.cluster.controller.core.features import describe_features, update_features
from tailrace.cluster.controller.core.partitions_added import create_partitions
from tailrace.cluster.controller.core.producer_ids import allocate_producer_ids
from tailrace.cluster.controller.core.reassignment import alter_reassignments, list_reassignments
from tailrace.cluster.controller.core.replication import alter_partitions
from tailrace.cluster.controller.core.topic_describe import describe_topics
from tailrace.cluster.controller.core.topics import create_topics, delete_topics
from tailrace.cluster.controller.keeper import BrokerKeeper
from tailrace.cluster.controller.metadata import MetadataFeed
from tailrace.cluster.rpc.authorizer import Authorizer, Operation, Resource
from tailrace.cluster.rpc.service import CallContext, Service, service, stream, unary
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1.metadata_pb2 import ControllerRegistered


class ControllerService:
    """For brokers and other controllers. With TLS a caller acts for the node of its certificate only."""

    def __init__(
        self,
        *,
        active: ActiveController,
        keeper: BrokerKeeper,
        feed: MetadataFeed,
        authorizer: Authorizer,
        voters: Collection[int],
    ) -> None:
        self._active = active
        self._keeper = keeper
        self._feed = feed
        self._authorizer = authorizer
        self._voters = voters

    async def register_broker(
        self, request: wire.RegisterBrokerRequest, context: CallContext
    ) -> wire.RegisterBrokerResponse:
        self._check(context, request.broker_id)
        return await self._keeper.register(request)

    async def heartbeat(
        self, requests: AsyncIterator[wire.HeartbeatRequest], context: CallContext
    ) -> AsyncIterator[wire.HeartbeatResponse]:
        async for response in self._keeper.heartbeats(self._checked(requests, context)):
            yield response

    async def _checked(
        self, requests: AsyncIterator[wire.HeartbeatRequest], context: CallContext
    ) -> AsyncIterator[wire.HeartbeatRequest]:
        async for request in requests:
            self._check(context, request.broker_id)
            yield request

    async def follow_metadata(
        self, requests: AsyncIterator[wire.FollowMetadataRequest], context: CallContext
    ) -> AsyncIterator[wire.MetadataUpdate]:
        """From any controller: what it has is committed."""
        async for request in requests:
            self._check(context, request.node_id)
            cluster_id = self._feed.image.cluster_id
            if request.cluster_id and cluster_id and request.cluster_id != cluster_id:
                raise TailraceError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"node {request.node_id} belongs to cluster {request.cluster_id}, and this is cluster "
                    f"{cluster_id}; point it to its own controllers, or give it an empty directory",
                )
            async for update in self._feed.follow(request.from_version):
                yield update

    async def alter_partitions(
        self, request: wire.AlterPartitionsRequest, context: CallContext
    ) -> wire.AlterPartitionsResponse:
        self._check(context, request.broker_id)
        return await self._active.run(lambda image: alter_partitions(image, request))

    async def allocate_producer_ids(
        self, request: wire.AllocateProducerIdsRequest, context: CallContext
    ) -> wire.AllocateProducerIdsResponse:
        self._check(context, request.broker_id)
        return await self._active.run(lambda image: allocate_producer_ids(image, request))

    async def register_controller(
        self, request: ControllerRegistered, context: CallContext
    ) -> wire.RegisterControllerResponse:
        self._check(context, request.node_id)
        error = await self._active.run(lambda image: register_controller(image, request, voters=self._voters))
        return wire.RegisterControllerResponse(error=error if error.code else None)

    def _check(self, context: CallContext, node_id: int) -> None:
        self._authorizer.check(context, Operation.CLUSTER_ACTION, Resource.cluster())
        if context.secure and context.peer.node_id != node_id:
            raise TailraceError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"the call is made for node {node_id}, and the caller's certificate is "
                + ("no node's" if context.peer.node_id is None else f"that of node {context.peer.node_id}"),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Where the active controller gets ids and chance from, before it proposes anything."""

    new_id: Callable[[], UUID]
    random: Random

    def seed(self) -> int:
        return self.random.getrandbits(63)


class AdminService:
    def __init__(
        self,
        *,
        active: ActiveController,
        keeper: BrokerKeeper,
        authorizer: Authorizer,
        static: Mapping[str, str],
        choices: Choices,
        voters: Collection[int],
        describe_quorum: Callable[[], admin.DescribeQuorumResponse],
    ) -> None:
        self._active = active
        self._keeper = keeper
        self._authorizer = authorizer
        self._static = static
        self._choices = choices
        self._voters = voters
        self._describe_quorum = describe_quorum

    # Topics.

    async def create_topics(
        self, request: admin.CreateTopicsRequest, context: CallContext
    ) -> admin.CreateTopicsResponse:
        self._check(context, Operation.CREATE, Resource.cluster())
        seed = self._choices.seed()
        return await self._active.run(
            lambda image: create_topics(
                image,
                request,
                new_id=self._choices.new_id,
                seed=seed,
                num_partitions=_number(node_setting(image, "num.partitions", self._static)) or 1,
                default_replication_factor=_number(
                    node_setting(image, "default.replication.factor", self._static)
                ),
                static=self._static,
            )
        )

    async def delete_topics(
        self, request: admin.DeleteTopicsRequest, context: CallContext
    ) -> admin.DeleteTopicsResponse:
        for topic in request.topics:
            self._check(context, Operation.DELETE, Resource.topic(self._name_of(topic)))
        return await self._active.run(
            lambda image: delete_topics(
                image,
                request,
                delete_topic_enable=bool(node_setting(image, "delete.topic.enable", self._static)),
            )
        )

    def _name_of(self, topic: admin.TopicRef) -> str:
        if topic.name or len(topic.topic_id) != 16:
            return topic.name
        known = self._active.committed.topics.get(UUID(bytes=topic.topic_id))
        return "" if known is None else known.name

    async def create_partitions(
        self, request: admin.CreatePartitionsRequest, context: CallContext
    ) -> admin.CreatePartitionsResponse:
        for topic in request.topics:
            self._check(context, Operation.ALTER, Resource.topic(topic.name))
        seed = self._choices.seed()
        return await self._active.run(lambda image: create_partitions(image, request, seed=seed))

    async def describe_topics(
        self, request: admin.DescribeTopicsRequest, context: CallContext
    ) -> admin.DescribeTopicsResponse:
        self._check(context, Operation.DESCRIBE, Resource.cluster())
        return describe_topics(await self._newest(), request).response

    # Configs.

    async def describe_configs(
        self, request: admin.DescribeConfigsRequest, context: CallContext
    ) -> admin.DescribeConfigsResponse:
        self._check(context, Operation.DESCRIBE_CONFIGS, Resource.cluster())
        return describe_configs(await self._newest(), request, static=self._static).response

    async def alter_configs(
        self, request: admin.AlterConfigsRequest, context: CallContext
    ) -> admin.AlterConfigsResponse:
        self._check(context, Operation.ALTER_CONFIGS, Resource.cluster())
        return await self._active.run(lambda image: alter_configs(image, request, static=self._static))

    # Partitions.

    async def elect_leaders(
        self, request: admin.ElectLeadersRequest, context: CallContext
    ) -> admin.ElectLeadersResponse:
        self._check(context, Operation.ALTER, Resource.cluster())
        return await self._active.run(lambda image: elect_leaders(image, request))

    async def alter_reassignments(
        self, request: admin.AlterReassignmentsRequest, context: CallContext
    ) -> admin.AlterReassignmentsResponse:
        self._check(context, Operation.ALTER, Resource.cluster())
        return await self._active.run(lambda image: alter_reassignments(image, request))

    async def list_reassignments(
        self, request: admin.ListReassignmentsRequest, context: CallContext
    ) -> admin.ListReassignmentsResponse:
        self._check(context, Operation.DESCRIBE, Resource.cluster())
        return list_reassignments(await self._newest(), request).response

    # Cluster.

    async def describe_cluster(
        self, request: admin.DescribeClusterRequest, context: CallContext
    ) -> admin.DescribeClusterResponse:
        """From any controller, so that callers can find the active one."""
        self._check(context, Operation.DESCRIBE, Resource.cluster())
        return describe_cluster(self._active.committed, controller_id=self._active.leadership.leader_id)

    async def unregister_broker(
        self, request: admin.UnregisterBrokerRequest, context: CallContext
    ) -> admin.UnregisterBrokerResponse:
        self._check(context, Operation.ALTER, Resource.cluster())
        return await self._keeper.unregister(request)

    async def describe_features(
        self, request: admin.DescribeFeaturesRequest, context: CallContext
    ) -> admin.DescribeFeaturesResponse:
        self._check(context, Operation.DESCRIBE, Resource.cluster())
        return describe_features(await self._newest())

    async def update_features(
        self, request: admin.UpdateFeaturesRequest, context: CallContext
    ) -> admin.UpdateFeaturesResponse:
        self._check(context, Operation.ALTER, Resource.cluster())
        return await self._active.run(lambda image: update_features(image, request, voters=self._voters))

    async def describe_quorum(
        self, request: admin.DescribeQuorumRequest, context: CallContext
    ) -> admin.DescribeQuorumResponse:
        """From any controller: how it sees the quorum."""
        self._check(context, Operation.DESCRIBE, Resource.cluster())
        return self._describe_quorum()

    async def _newest(self) -> ClusterImage:
        return await self._active.barrier()

    def _check(self, context: CallContext, operation: Operation, resource: Resource) -> None:
        self._authorizer.check(context, operation, resource)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def controller_service(handlers: ControllerService) -> Service:
    return service(
        "Controller",
        unary(
            "RegisterBroker",
            wire.RegisterBrokerRequest,
            wire.RegisterBrokerResponse,
            handlers.register_broker,
        ),
        stream("Heartbeat", wire.HeartbeatRequest, wire.HeartbeatResponse, handlers.heartbeat),
        stream("FollowMetadata", wire.FollowMetadataRequest, wire.MetadataUpdate, handlers.follow_metadata),
        unary(
            "AlterPartitions",
            wire.AlterPartitionsRequest,
            wire.AlterPartitionsResponse,
            handlers.alter_partitions,
        ),
        unary(
            "AllocateProducerIds",
            wire.AllocateProducerIdsRequest,
            wire.AllocateProducerIdsResponse,
            handlers.allocate_producer_ids,
        ),
        unary(
            "RegisterController",
            ControllerRegistered,
            wire.RegisterControllerResponse,
            handlers.register_controller,
        ),
    )


def admin_service(handlers: AdminService) -> Service:
    """Methods are named as in admin.proto, and so are their messages and handlers."""
    names = [method.name for method in admin.DESCRIPTOR.services_by_name["Admin"].methods]
    return service(
        "Admin",
        *(
            unary(
                name,
                getattr(admin, f"{name}Request"),
                getattr(admin, f"{name}Response"),
                getattr(handlers, _snake(name)),
            )
            for name in names
        ),
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
