"""A node: the parts that its roles ask for, from start to end of a process.

`run_node` is what `tailrace server` does. It returns when the process was asked to stop (SIGTERM, SIGINT),
and raises TailraceError when a part could not be started or cannot go on.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from random import SystemRandom

import uvloop

from tailrace.cluster.common.config import Loaded
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.controller.server import ControllerServer
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tailrace.cluster.runtime.clock import SystemClock
from tailrace.cluster.runtime.logs import configure_logs, get_logger
from tailrace.cluster.storage.files import OsFiles

events = get_logger(__name__)


def run_node(
    loaded: Loaded[NodeConfig], *, release: str, on_ready: Callable[[ControllerServer], None]
) -> None:
    config = loaded.config
    configure_logs(config.logging.logging_level, config.logging.logging_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(loaded, release, on_ready))


async def _run(
    loaded: Loaded[NodeConfig], release: str, on_ready: Callable[[ControllerServer], None]
) -> None:
    config = loaded.config
    if config.server.is_broker:
        raise TailraceError(
            ErrorCode.NOT_YET_SUPPORTED,
            "the role broker is not built yet; set process.roles to controller",
        )
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not ended.done():
            ended.set_result(None)

    def fail(error: TailraceError) -> None:
        if not ended.done():
            ended.set_exception(error)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    controller = ControllerServer(
        config,
        given={
            one.setting.name: one.value for one in loaded.describe() if one.setting.name in loaded.sources
        },
        transport=GrpcTransport(),
        files=OsFiles(),
        clock=SystemClock(),
        random=SystemRandom(),
        release=release,
        on_failure=fail,
    )
    await controller.start()
    try:
        on_ready(controller)
        await ended
    finally:
        events.info("node_stopping", node_id=config.server.node_id)
        await controller.stop()
