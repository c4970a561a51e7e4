"""The shortest program with a log: open a directory, append, read, close.

    python examples/quick_log.py DIR

Run it again with the same directory, and the log goes on where it ended. Disk work is done on this thread,
when `drain` is called; examples/local_log.py shows logs with threads, an event loop and several producers.
"""

import sys
import time
from uuid import uuid4

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import InlineBlocking
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.files import OsFiles
from tailrace.cluster.storage.manager import LogManager


def main(directory: str) -> None:
    now_ms, blocking = time.time_ns() // 1_000_000, InlineBlocking()
    throttle = Throttle(float("inf"), clock=time.monotonic, sleep=time.sleep)
    config = StorageConfig(log_dir=directory)
    manager = LogManager(config=config, files=OsFiles(), blocking=blocking, throttle=throttle)
    manager.open(now_ms=now_ms)
    orders = TopicPartition("orders", 0)
    log = manager.get(orders) or manager.create(orders, uuid4(), now_ms=now_ms)

    batch = encode_batch(keys=[b"anna", b"ben"], values=[b"ordered", b"paid"], timestamps=now_ms)
    appended = log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
    blocking.drain()
    assert log.durable_end == appended.last_offset + 1  # Only now may anyone be told that it is stored.

    for stored in log.batches():
        for record in stored.records("orders", 0):
            print(record.offset, record.key, record.value)
    manager.close(lambda: print("closed"))
    blocking.drain()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/quick_log.py DIR")
    main(sys.argv[1])
