"""The cluster as a whole: its first entry, and what it looks like to someone who asks."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from uuid import UUID

from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.image_records import broker_record
from tailrace.cluster.controller.core.controllers import controller_record
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.features import SUPPORTED, Supported, level_record
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import metadata_pb2 as pb

NO_CONTROLLER = -1


def cluster_id_from(random_id: UUID) -> str:
    """22 letters, digits, '-' and '_', as Kafka's cluster ids are."""
    return urlsafe_b64encode(random_id.bytes).rstrip(b"=").decode("ascii")


def create_cluster(
    image: ClusterImage, *, cluster_id: str, supported: Supported = SUPPORTED
) -> Decision[None]:
    """What the first active controller writes before anything else: who we are, and the newest feature levels
    that its release knows. Nothing in a cluster that there is already, so every new active controller may
    ask.
    """
    if image.cluster_id:
        return Decision(None)
    records = [pb.MetadataRecord(cluster_created=pb.ClusterCreated(cluster_id=cluster_id))]
    records += [level_record(name, levels.max_level) for name, levels in sorted(supported.items())]
    return Decision(None, records)


def describe_cluster(image: ClusterImage, *, controller_id: int | None) -> admin.DescribeClusterResponse:
    """`controller_id` is the active controller's, as far as the one who answers knows. Brokers that are
    fenced or shutting down are there too, and marked."""
    return admin.DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=NO_CONTROLLER if controller_id is None else controller_id,
        controller_epoch=image.controller_epoch,
        brokers=[broker_record(broker) for _, broker in sorted(image.brokers.items())],
        controllers=[controller_record(controller) for _, controller in sorted(image.controllers.items())],
        metadata_version=image.version,
    )
