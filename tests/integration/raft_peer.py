"""A process with the links of one controller: it sends every message back, and ends with its standard input.

Called by `PeerProcess` with its configuration as the argument. It prints the port that it was given, then
reads the addresses of all voters from the first line of its standard input.
"""

from __future__ import annotations

import json
import sys

from tailrace.cluster.controller.quorum.grpc_links import GrpcRaftLinks
from tailrace.cluster.rpc.tls import TlsSettings


class Echo:
    def __init__(self, links: GrpcRaftLinks) -> None:
        self._links = links

    def on_message(self, peer_id: int, data: bytes) -> None:
        self._links.send(peer_id, data)

    def on_up(self, peer_id: int) -> None:
        pass

    def on_down(self, peer_id: int) -> None:
        pass


def main() -> None:
    config = json.loads(sys.argv[1])
    tls = None
    if config["tls"] is not None:
        cert_file, key_file, ca_file = config["tls"]
        tls = TlsSettings(cert_file=cert_file, key_file=key_file, ca_file=ca_file)
    voters = dict.fromkeys(config["ids"], "127.0.0.1:0")
    links = GrpcRaftLinks(
        node_id=config["node_id"],
        voters=voters,
        listen="127.0.0.1:0",
        tls=tls,
        cluster_id=lambda: config["cluster_id"],
    )
    print(links.bind(), flush=True)
    voters.update({int(node_id): address for node_id, address in json.loads(sys.stdin.readline()).items()})
    links.start(Echo(links))
    sys.stdin.read()
    links.stop()


if __name__ == "__main__":
    main()
