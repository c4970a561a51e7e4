"""The one table of errors: number, meaning, and what a client should do about each.

`ErrorCode` and the enum in proto/tailrace/v1/errors.proto are the same list (a test keeps them
equal). Partition errors travel in response bodies as these numbers; a gRPC status means transport,
authentication or quota. An error that a person sees says what was wrong, where, and what to do.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """A number on the wire, with its traits.

    `retriable`: the same request may succeed later. `refresh_metadata`: the client's view of who
    leads what is out of date and must be fetched again first.
    """

    retriable: bool
    refresh_metadata: bool
    summary: str

    def __new__(
        cls, value: int, summary: str, retriable: bool = False, refresh_metadata: bool = False
    ) -> ErrorCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.summary = summary
        member.retriable = retriable
        member.refresh_metadata = refresh_metadata
        return member

    NONE = 0, "no error"
    UNKNOWN_SERVER_ERROR = 1, "the server failed in a way it did not expect; its log has the details"

    # Requests and batches.
    INVALID_REQUEST = 10, "the request breaks a rule of the protocol"
    UNSUPPORTED_VERSION = 11, "this version of the message or format is not known here"
    INVALID_CONFIG = 12, "a setting is unknown, has a wrong type, or breaks a limit"
    CORRUPT_BATCH = 13, "a batch's checksum or structure is wrong"
    UNKNOWN_CODEC = 14, "the batch names a compression codec that does not exist"
    RECORD_TOO_LARGE = 15, "a record or batch is larger than max.message.bytes allows"
    RECORD_WITHOUT_KEY = 16, "a compacted topic takes only records with keys"
    INVALID_TIMESTAMP = 17, "a record's timestamp is outside what the topic allows"
    INVALID_RECORD = 18, "a record or batch breaks a rule of the topic"
    SERIALIZATION_FAILED = 19, "a key or value could not be serialized or deserialized"

    # Offsets and logs.
    OFFSET_OUT_OF_RANGE = 30, "the offset is before the start or after the end of the log"
    OFFSET_NOT_AVAILABLE = 31, "the leader cannot vouch for this offset yet", True
    STORAGE_ERROR = 32, "the log directory failed or is offline", True, True
    STORAGE_CORRUPT = 33, "stored data is damaged and must be fetched again from another replica"
    STORAGE_OVERLOADED = 34, "too many bytes wait for the disk", True
    LOG_DIR_NOT_FOUND = 35, "no such log directory"

    # Leadership and replication.
    NOT_LEADER = 50, "this broker does not lead the partition", True, True
    LEADER_NOT_AVAILABLE = 51, "the partition has no leader at the moment", True, True
    REPLICA_NOT_AVAILABLE = 52, "the replica is not here", True, True
    FENCED_LEADER_EPOCH = 53, "the request carries an older leader epoch than the broker's", True, True
    UNKNOWN_LEADER_EPOCH = 54, "the request carries a newer leader epoch than the broker's", True
    NOT_ENOUGH_REPLICAS = 55, "fewer replicas in sync than min.insync.replicas; nothing written", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        56,
        "written, but fewer replicas in sync than min.insync.replicas before it was committed",
        True,
    )
    REQUEST_TIMED_OUT = 57, "the request was not completed in its time; its outcome is not known", True
    DIVERGED_LOG = 58, "the log has parted from the leader's and must be truncated first"

    # Topics and metadata.
    UNKNOWN_TOPIC_OR_PARTITION = 70, "no such topic or partition here", True, True
    UNKNOWN_TOPIC_ID = 71, "no topic has this id (it may have been deleted and created anew)", True, True
    INCONSISTENT_TOPIC_ID = 72, "the topic's name and id do not belong together", True, True
    TOPIC_ALREADY_EXISTS = 73, "a topic of this name exists"
    INVALID_TOPIC = 74, "the name cannot be a topic's name"
    INVALID_PARTITIONS = 75, "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = 76, "the replication factor is not allowed or exceeds the brokers"
    INVALID_REPLICA_ASSIGNMENT = 77, "the assignment of replicas to brokers is not allowed"
    TOPIC_DELETION_DISABLED = 78, "delete.topic.enable is off"
    INVALID_UPDATE_VERSION = 79, "the partition epoch is out of date; read the partition again", True
    INELIGIBLE_REPLICA = 80, "a broker in the new ISR is fenced, shutting down or of an old epoch", True
    ELECTION_NOT_NEEDED = 81, "the preferred replica leads already"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 82, "no replica may become leader"
    REASSIGNMENT_IN_PROGRESS = 83, "a reassignment of this partition is going on"
    NO_REASSIGNMENT_IN_PROGRESS = 84, "no reassignment of this partition is going on"

    # Controller and brokers.
    NOT_CONTROLLER = 100, "this node is not the active controller", True, True
    CONTROLLER_NOT_AVAILABLE = 101, "no controller is active at the moment", True
    STALE_CONTROLLER_EPOCH = 102, "the request carries an older controller epoch"
    UNKNOWN_OUTCOME = 103, "leadership changed on the way; the operation may or may not have happened"
    STALE_BROKER_EPOCH = 104, "the broker has registered again since"
    BROKER_NOT_REGISTERED = 105, "no broker of this id is registered", True
    DUPLICATE_BROKER_REGISTRATION = 106, "a live broker with this id is registered already"
    INCONSISTENT_CLUSTER_ID = 107, "the node belongs to another cluster"
    BROKER_FENCED = 108, "the broker is fenced", True
    UNSUPPORTED_FEATURE = 109, "the feature level is not supported by every node"
    DUPLICATE_REQUEST = 110, "a request of this id was applied already"

    # Producers and transactions.
    OUT_OF_ORDER_SEQUENCE = 130, "a batch before this one is missing"
    DUPLICATE_SEQUENCE = 131, "the batch is older than those whose offsets are still remembered"
    UNKNOWN_PRODUCER_ID = 132, "nothing is known of this producer here (its state has expired)"
    INVALID_PRODUCER_EPOCH = 133, "the producer's epoch is older than one already seen"
    PRODUCER_FENCED = 134, "a newer producer has taken over this transactional id"
    INVALID_TRANSACTION_STATE = 135, "the transaction is in a state that does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 136, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 137, "the transaction timeout is not allowed"
    CONCURRENT_TRANSACTIONS = 138, "an earlier transaction of this producer is still being ended", True
    TRANSACTION_COORDINATOR_FENCED = 139, "a newer coordinator has written a marker already"
    TRANSACTIONAL_ID_NOT_FOUND = 140, "no such transactional id"
    TRANSACTION_ABORTABLE = 141, "the transaction must be aborted and may be tried again"
    TRANSACTION_ALREADY_COMMITTED = 142, "this sequence of the owner is committed already"
    TRANSACTION_EXPIRED = 143, "the transaction was aborted because its time was over"

    # Groups.
    COORDINATOR_NOT_AVAILABLE = 160, "the coordinator is not available at the moment", True, True
    NOT_COORDINATOR = 161, "this broker does not coordinate the group or transaction", True, True
    COORDINATOR_LOAD_IN_PROGRESS = 162, "the coordinator is still loading its state", True
    UNKNOWN_MEMBER_ID = 163, "the group does not know this member"
    FENCED_MEMBER_EPOCH = 164, "the member's epoch is not the current one; join again"
    STALE_MEMBER_EPOCH = 165, "the member's epoch is older than the group's; take the new assignment", True
    UNRELEASED_INSTANCE_ID = 166, "another member still holds this group instance id"
    FENCED_INSTANCE_ID = 167, "another member has taken over this group instance id"
    GROUP_MAX_SIZE_REACHED = 168, "the group has as many members as it may have"
    UNSUPPORTED_ASSIGNOR = 169, "the coordinator does not know this assignor"
    INVALID_GROUP_ID = 170, "the group id is not allowed"
    GROUP_ID_NOT_FOUND = 171, "no such group"
    NON_EMPTY_GROUP = 172, "the group still has members"
    GROUP_SUBSCRIBED_TO_TOPIC = 173, "the group is subscribed to the topic"
    OFFSET_METADATA_TOO_LARGE = 174, "the metadata of a committed offset is too long"
    INVALID_COMMIT_OFFSET = 175, "the committed offset is not valid"
    UNSTABLE_OFFSET_COMMIT = 176, "offsets wait for a transaction to end", True
    REBALANCE_IN_PROGRESS = 177, "the group is being rebalanced", True

    # Access and limits.
    AUTHENTICATION_FAILED = 190, "the caller could not be identified"
    TOPIC_AUTHORIZATION_FAILED = 191, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 192, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 193, "not allowed on this cluster"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 194, "not allowed on this transactional id"
    THROTTLING_QUOTA_EXCEEDED = 195, "a quota is used up; wait and try again", True
    POLICY_VIOLATION = 196, "a policy of this cluster forbids it"
    NOT_YET_SUPPORTED = 197, "this part of Tailrace is not built yet"

    # Known to clients only; never sent by a server.
    CONNECTION_LOST = 220, "the connection broke", True, True
    BUFFER_EXHAUSTED = 221, "buffer_memory stayed full for max_block_ms", True
    DELIVERY_TIMED_OUT = 222, "the record was not acknowledged within delivery_timeout_ms"
    CLIENT_CLOSED = 223, "the client is closed"
    NO_OFFSET_FOR_PARTITION = 224, "no committed offset, and auto_offset_reset is none"
    LOG_TRUNCATED = 225, "records that this consumer had read are no longer in the log"


class TailraceError(Exception):
    """The base of every error that a caller may meet, on either side of the wire.

    `str()` is the message for people; `code` is what programs branch on.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.summary)
        self.code = code

    @property
    def retriable(self) -> bool:
        return self.code.retriable

    @property
    def refresh_metadata(self) -> bool:
        return self.code.refresh_metadata

    def __str__(self) -> str:
        return f"{self.code.name}: {self.args[0]}"

    def __reduce__(self) -> tuple[type[TailraceError], tuple[ErrorCode, str]]:
        return type(self), (self.code, self.args[0])
