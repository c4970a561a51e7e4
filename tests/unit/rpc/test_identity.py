"""Names in certificates and the identities that they give; addresses and what is loopback."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.rpc.identity import NOBODY, PeerIdentity, identity_from, node_id_of, node_name


@pytest.mark.parametrize(
    ("names", "node_id"),
    [
        (["tailrace-node-3", "localhost"], 3),
        (["TAILRACE-NODE-3"], 3),
        (["tailrace-node-0"], 0),
        (["tailrace-node-2147483647"], 2147483647),
        ([], None),
        (["localhost"], None),
        (["tailrace-node-1", "tailrace-node-2"], None),
        (["tailrace-node-1", "tailrace-node-x"], None),
        (["tailrace-node-01"], None),
        (["tailrace-node--1"], None),
        (["tailrace-node-1.example"], None),
        (["tailrace-node-2147483648"], None),
        (["tailrace-node-"], None),
        (["tailrace-node-\u0663"], None),
        (["x.tailrace-node-1"], None),
    ],
)
def test_node_is_known_only_when_names_say_exactly_one(names: list[str], node_id: int | None) -> None:
    assert node_id_of(names) == node_id


@pytest.mark.parametrize("node_id", [-1, 2**31])
def test_node_has_no_name_when_its_id_is_impossible(node_id: int) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        node_name(node_id)


def test_identity_is_nobody_when_no_certificate_was_shown() -> None:
    assert identity_from({}) is NOBODY
    assert identity_from({"transport_security_type": [b"ssl"], "peer_dns": [b"tailrace-node-1"]}) is NOBODY


def test_identity_always_has_a_principal_when_a_certificate_was_shown() -> None:
    shown = {"x509_pem_cert": [b"..."]}
    assert identity_from(shown | {"x509_common_name": [b"ann"]}) == PeerIdentity("ann", None)
    assert identity_from(shown | {"x509_common_name": [b""], "x509_subject": [b"O=x"]}).principal == "O=x"
    assert identity_from(shown).principal == "unnamed"
    assert identity_from(shown | {"peer_dns": [b"tailrace-node-7"]}).node_id == 7
    uri = shown | {"peer_uri": [b"tailrace-node-7"], "x509_subject_alternative_name": [b"tailrace-node-7"]}
    assert identity_from(uri).node_id is None


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("localhost:9092", "localhost", 9092, True),
        ("127.0.0.1:0", "127.0.0.1", 0, True),
        ("[::1]:65535", "::1", 65535, True),
        ("[fe80::1]:1", "fe80::1", 1, False),
        ("broker-1.example:9092", "broker-1.example", 9092, False),
        ("localhost.example:9092", "localhost.example", 9092, False),
        ("0.0.0.0:9092", "0.0.0.0", 9092, False),
    ],
)
def test_address_is_read_and_shown_the_same_when_it_is_well_formed(
    text: str, host: str, port: int, loopback: bool
) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "::1:9092", "a b:1", "host:\u0661"]
)
def test_address_is_refused_when_it_is_not_well_formed(text: str) -> None:
    with pytest.raises(TailraceError, match="is no address: write host:port"):
        Address.parse(text)
