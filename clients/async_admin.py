"""`AsyncAdmin`: administration of a cluster, awaited. `Admin` is the same for programs that block.

Calls go to the active controller, which is found through any of the controllers. A call that changes
something has an id of its own, which stays the same when it is sent again, so it is done once.

Where a request has several items, each has its own outcome: if any failed, the call raises `AdminError`,
which has the errors by item, and the results of the others. Errors that no item caused are other
`TailraceError`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack
from uuid import UUID, uuid4

from tailrace.clients import admin_messages as messages
from tailrace.clients.admin_config import AdminConfig, AdminOptions
from tailrace.clients.admin_types import (
    AdminError,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    ElectionType,
    FeatureDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    QuorumDescription,
    TopicDescription,
    TopicListing,
)
from tailrace.clients.controller_link import ControllerLink
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1.errors_pb2 import Error

# An answer has to fit into a message; what is described is asked for in parts of about this size.
PARTITIONS_A_REQUEST = 5_000
RESOURCES_A_REQUEST = 100

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class AsyncAdmin:
    """Options: see `AdminOptions`. Nothing is opened before the first call, which is made on the event loop
    that all others are made on."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._link = ControllerLink(AdminConfig.from_options(options))

    @classmethod
    def on(cls, link: ControllerLink) -> Self:
        """A client on a link that is there."""
        made = cls.__new__(cls)
        made._link = link
        return made

    async def close(self) -> None:
        await self._link.close()

    async def rest(self) -> None:
        """Gives up connections; the next call makes new ones."""
        await self._link.rest()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Topics.

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        wanted = [messages.new_topic(one) for one in topics]
        if not wanted:
            return {}
        request = admin.CreateTopicsRequest(topics=wanted, validate_only=validate_only, request_id=_new_id())
        response: admin.CreateTopicsResponse = await self._change("CreateTopics", request)
        return _results(response.topics, _name, messages.created_topic)

    async def delete_topics(self, topics: Iterable[str | UUID]) -> None:
        """By name, or by id."""
        refs = [messages.topic_ref(one) for one in _several(topics)]
        if not refs:
            return
        request = admin.DeleteTopicsRequest(topics=refs, request_id=_new_id())
        response: admin.DeleteTopicsResponse = await self._change("DeleteTopics", request)
        _results(response.topics, _name_or_id, _nothing)

    async def create_partitions(
        self, partitions: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> None:
        """Each topic with the number of partitions that it is to have in all."""
        wanted = [messages.new_partitions(name, new) for name, new in partitions.items()]
        if not wanted:
            return
        request = admin.CreatePartitionsRequest(
            topics=wanted, validate_only=validate_only, request_id=_new_id()
        )
        response: admin.CreatePartitionsResponse = await self._change("CreatePartitions", request)
        _results(response.topics, _name, _nothing)

    async def list_topics(self, *, include_internal: bool = False) -> dict[str, TopicListing]:
        response = await self._topics(None, names_only=True, include_internal=include_internal)
        return _results(response.topics, _name, messages.topic_listing)

    async def describe_topics(
        self, topics: Iterable[str | UUID] | None = None, *, include_internal: bool = False
    ) -> dict[str, TopicDescription]:
        """Those named, by name or id; without names all, of which `include_internal` is said."""
        if topics is None:
            listed = await self.list_topics(include_internal=include_internal)
            outcomes = await self._described(listed.values())
            # Between the two calls a topic may have been deleted, which is nobody's mistake.
            return _results(
                (one for one in outcomes if int(one.error.code) not in _GONE), _name, _description
            )
        refs = [messages.topic_ref(one) for one in _several(topics)]
        if not refs:
            return {}
        if len(refs) == 1:
            response = await self._topics(refs)
            return _results(response.topics, _name_or_id, _description)
        response = await self._topics(refs, names_only=True)
        missing = [one for one in response.topics if one.error.code]
        found = [messages.topic_listing(one) for one in response.topics if not one.error.code]
        return _results([*missing, *await self._described(found)], _name_or_id, _description)

    async def _described(self, listed: Iterable[TopicListing]) -> list[admin.DescribeTopicsResponse.Topic]:
        outcomes: list[admin.DescribeTopicsResponse.Topic] = []
        for part in _parts(listed):
            response = await self._topics([admin.TopicRef(name=one.name) for one in part])
            outcomes += response.topics
        return outcomes

    async def _topics(
        self,
        refs: Sequence[admin.TopicRef] | None,
        *,
        names_only: bool = False,
        include_internal: bool = True,
    ) -> admin.DescribeTopicsResponse:
        request = admin.DescribeTopicsRequest(
            topics=refs, names_only=names_only, include_internal=include_internal
        )
        response: admin.DescribeTopicsResponse = await self._link.call("DescribeTopics", request)
        return response

    # Settings.

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, Mapping[str, ConfigEntry]]:
        """Every setting of each resource, or those of `keys`."""
        asked = list(dict.fromkeys(resources))
        wanted = None if keys is None else list(_several(keys))
        if wanted is not None and not wanted:
            return {one: {} for one in asked}
        answers: list[admin.DescribeConfigsResponse.Resource] = []
        for start in range(0, len(asked), RESOURCES_A_REQUEST):
            request = admin.DescribeConfigsRequest(
                resources=[
                    admin.DescribeConfigsRequest.Resource(
                        resource=messages.resource_message(one), keys=wanted
                    )
                    for one in asked[start : start + RESOURCES_A_REQUEST]
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            response: admin.DescribeConfigsResponse = await self._link.call("DescribeConfigs", request)
            answers += response.resources
        return _results(answers, _resource, lambda one: messages.config_entries(one.entries))

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Only what is named changes. The changes of one resource are made together or not at all."""
        resources = [messages.resource_changes(resource, asked) for resource, asked in changes.items()]
        if not resources:
            return
        request = admin.AlterConfigsRequest(
            resources=resources, validate_only=validate_only, request_id=_new_id()
        )
        response: admin.AlterConfigsResponse = await self._change("AlterConfigs", request)
        _results(response.resources, _resource, _nothing)

    # Partitions.

    async def elect_leaders(
        self,
        election_type: ElectionType | str = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, bool]:
        """Of the partitions named, or of all that need it. True where a leader was elected, False where the
        wanted one leads already."""
        kind = admin.ElectLeadersRequest.KIND_PREFERRED
        if ElectionType(election_type) is ElectionType.UNCLEAN:
            kind = admin.ElectLeadersRequest.KIND_UNCLEAN
        refs = None if partitions is None else [messages.partition_ref(one) for one in partitions]
        if refs is not None and not refs:
            return {}
        request = admin.ElectLeadersRequest(kind=kind, partitions=refs, request_id=_new_id())
        response: admin.ElectLeadersResponse = await self._change("ElectLeaders", request)
        return _results(
            response.partitions,
            _partition,
            lambda one: one.error.code == 0,
            fine=ErrorCode.ELECTION_NOT_NEEDED,
        )

    async def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        """The brokers that each partition is to be on, the preferred leader first; None cancels what is going
        on. Records are copied after the call: `list_partition_reassignments` has those not finished."""
        wanted = []
        for partition, replicas in reassignments.items():
            if replicas is not None and not replicas:
                raise TailraceError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{partition[0]}-{partition[1]} would have no replica; give None to cancel",
                )
            ref = messages.partition_ref(partition)
            wanted.append(admin.AlterReassignmentsRequest.Partition(partition=ref, replicas=replicas))
        if not wanted:
            return
        request = admin.AlterReassignmentsRequest(partitions=wanted, request_id=_new_id())
        response: admin.AlterReassignmentsResponse = await self._change("AlterReassignments", request)
        _results(response.partitions, _partition, _nothing)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Those going on, of the partitions named or of all."""
        refs = None if partitions is None else [messages.partition_ref(one) for one in partitions]
        if refs is not None and not refs:
            return {}
        request = admin.ListReassignmentsRequest(partitions=refs)
        response: admin.ListReassignmentsResponse = await self._link.call("ListReassignments", request)
        return {
            messages.topic_partition(one.partition): PartitionReassignment(
                replicas=tuple(one.replicas), adding=tuple(one.adding), removing=tuple(one.removing)
            )
            for one in response.partitions
        }

    # The cluster.

    async def describe_cluster(self) -> ClusterDescription:
        """As the active controller sees it, or as whoever answers does when there is none."""
        return messages.cluster_description(await self._cluster())

    async def _cluster(self) -> admin.DescribeClusterResponse:
        """Any controller answers, so the first answer is good for finding the active one."""
        request = admin.DescribeClusterRequest()
        response: admin.DescribeClusterResponse = await self._link.call("DescribeCluster", request)
        if self._link.prefer_active(response):
            response = await self._link.call("DescribeCluster", request)
        return response

    async def unregister_broker(self, broker_id: int) -> None:
        """For a broker that is gone for good. Its partitions keep it among their replicas until they are
        reassigned."""
        request = admin.UnregisterBrokerRequest(broker_id=broker_id, request_id=_new_id())
        response: admin.UnregisterBrokerResponse = await self._change("UnregisterBroker", request)
        _raise(response.error)

    async def describe_features(self) -> dict[str, FeatureDescription]:
        request = admin.DescribeFeaturesRequest()
        response: admin.DescribeFeaturesResponse = await self._link.call("DescribeFeatures", request)
        return {
            one.name: FeatureDescription(
                name=one.name,
                level=one.level,
                min_supported=one.min_supported,
                max_supported=one.max_supported,
            )
            for one in response.features
        }

    async def update_features(
        self, levels: Mapping[str, int], *, allow_downgrade: bool = False, validate_only: bool = False
    ) -> None:
        """All of the levels are set, or none."""
        if not levels:
            return
        features = [
            admin.UpdateFeaturesRequest.Feature(name=name, level=level, allow_downgrade=allow_downgrade)
            for name, level in levels.items()
        ]
        request = admin.UpdateFeaturesRequest(
            features=features, validate_only=validate_only, request_id=_new_id()
        )
        response: admin.UpdateFeaturesResponse = await self._change("UpdateFeatures", request)
        _raise(response.error)

    async def describe_quorum(self) -> QuorumDescription:
        """As the leader sees it, or as whoever answers does when there is none."""
        await self._cluster()
        response = await self._link.call("DescribeQuorum", admin.DescribeQuorumRequest())
        return messages.quorum_description(response)

    async def _change(self, method: str, request: Any) -> Any:
        return await self._link.call(method, request, changes=not getattr(request, "validate_only", False))


class _Answer(Protocol):
    @property
    def error(self) -> Error: ...


Answer = TypeVar("Answer", bound=_Answer)
Item = TypeVar("Item")
Result = TypeVar("Result")


def _results(
    answers: Iterable[Answer],
    item: Callable[[Answer], Item],
    result: Callable[[Answer], Result],
    *,
    fine: ErrorCode = ErrorCode.NONE,
) -> dict[Item, Result]:
    """The results by item, or `AdminError`; an item whose error is `fine` has a result too."""
    errors: dict[Item, TailraceError] = {}
    results: dict[Item, Result] = {}
    for one in answers:
        failure = messages.failure_from(one.error)
        if failure is None or failure.code is fine:
            results[item(one)] = result(one)
        else:
            errors[item(one)] = failure
    if errors:
        raise AdminError(errors, results)
    return results


def _raise(error: Error) -> None:
    failure = messages.failure_from(error)
    if failure is not None:
        raise failure


def _several(items: Iterable[Item]) -> Iterable[Item]:
    """A single text is many texts to Python; nobody means to delete the topics 'c', 'l', 'i', 'c', 'k'."""
    if isinstance(items, str):
        raise TypeError(f"give a list, such as [{items!r}]")
    return items


def _parts(listed: Iterable[TopicListing]) -> Iterator[list[TopicListing]]:
    """Topics whose partitions, together, are about as many as one answer should have."""
    part: list[TopicListing] = []
    size = 0
    for one in listed:
        if part and size + one.partition_count > PARTITIONS_A_REQUEST:
            yield part
            part, size = [], 0
        part.append(one)
        size += max(1, one.partition_count)
    if part:
        yield part


def _new_id() -> bytes:
    return uuid4().bytes


def _name(answer: Any) -> str:
    return str(answer.name)


def _name_or_id(answer: Any) -> str:
    """A topic that was asked for by an id that nobody has is known by that id alone."""
    return str(answer.name) or str(UUID(bytes=answer.topic_id))


def _resource(answer: Any) -> ConfigResource:
    return messages.config_resource(answer.resource)


def _partition(answer: Any) -> TopicPartition:
    return messages.topic_partition(answer.partition)


def _description(answer: admin.DescribeTopicsResponse.Topic) -> TopicDescription:
    return messages.topic_description(answer)


def _nothing(_: Any) -> None:
    return None
