"""TLS files and what is said when they cannot be used; identities over real connections."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.certificates import Authority, KeyPair
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tailrace.cluster.rpc.identity import PeerIdentity
from tailrace.cluster.rpc.service import CallContext, Service, service, unary
from tailrace.cluster.rpc.tls import TlsSettings, channel_credentials, load_tls_files, server_credentials
from tailrace.cluster.rpc.transport import Listener
from tests.unit.rpc.networks import ECHO, LOOPBACK, run

HERE = Address(LOOPBACK, 0)
EVERYWHERE = Address("0.0.0.0", 9093)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create(days=2)


@pytest.fixture
def tls(tmp_path: Path, authority: Authority) -> TlsSettings:
    """The files of node 1."""
    return write(tmp_path, "node-1", authority.issue_node(1, [LOOPBACK], days=1), authority)


def write(directory: Path, name: str, pair: KeyPair, authority: Authority) -> TlsSettings:
    (directory / f"{name}.crt").write_bytes(pair.certificate)
    (directory / f"{name}.key").write_bytes(pair.key)
    (directory / "ca.crt").write_bytes(authority.pair.certificate)
    return TlsSettings(
        cert_file=str(directory / f"{name}.crt"),
        key_file=str(directory / f"{name}.key"),
        ca_file=str(directory / "ca.crt"),
    )


def replace_file(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def assert_refused(tls: TlsSettings, *said: str) -> None:
    with pytest.raises(TailraceError) as raised:
        load_tls_files(tls)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    for part in said:
        assert part in str(raised.value)


def test_files_are_loaded_when_they_belong_together(tls: TlsSettings) -> None:
    files = load_tls_files(tls)
    assert files.node_id == 1
    assert files.cert == Path(tls.cert_file).read_bytes()


def _with_file(tls: TlsSettings, setting: str, path: Path) -> TlsSettings:
    match setting:
        case "tls.cert.file":
            return replace(tls, cert_file=str(path))
        case "tls.key.file":
            return replace(tls, key_file=str(path))
    return replace(tls, ca_file=str(path))


@pytest.mark.parametrize("setting", ["tls.cert.file", "tls.key.file", "tls.ca.file"])
def test_setting_is_named_when_its_file_cannot_be_used(
    tls: TlsSettings, tmp_path: Path, setting: str
) -> None:
    missing = tmp_path / "nowhere.pem"
    assert_refused(_with_file(tls, setting, missing), setting, "there is no file", str(missing))
    garbage = tmp_path / "garbage.pem"
    garbage.write_bytes(b"not a certificate")
    assert_refused(_with_file(tls, setting, garbage), setting, "in PEM form", str(garbage))
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"\n")
    assert_refused(_with_file(tls, setting, empty), setting, "is empty")
    assert_refused(_with_file(tls, setting, tmp_path), setting, "cannot be read")


def test_key_is_refused_when_it_belongs_to_another_certificate(
    tls: TlsSettings, tmp_path: Path, authority: Authority
) -> None:
    other = write(tmp_path, "node-2", authority.issue_node(2, [], days=1), authority)
    assert_refused(replace(tls, key_file=other.key_file), "tls.key.file", "is not the key of the certificate")


def test_certificate_is_refused_when_another_authority_issued_it(tls: TlsSettings, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(Authority.create(days=1).pair.certificate)
    assert_refused(replace(tls, ca_file=str(other)), "tls.cert.file", "was not issued by", "tls.ca.file")


def test_certificate_is_refused_when_its_time_is_over_or_has_not_come(tls: TlsSettings) -> None:
    now = datetime.datetime.now(datetime.UTC)
    with pytest.raises(TailraceError, match="has expired"):
        load_tls_files(tls, now + datetime.timedelta(days=3))
    with pytest.raises(TailraceError, match="valid only from"):
        load_tls_files(tls, now - datetime.timedelta(days=3))


def test_one_of_a_pair_is_refused_when_the_other_is_not_set(tls: TlsSettings) -> None:
    assert_refused(replace(tls, key_file=""), "tls.key.file", "is not set")
    assert_refused(replace(tls, cert_file=""), "tls.cert.file", "is not set")


def test_listener_is_refused_when_it_lacks_what_tls_needs(tls: TlsSettings) -> None:
    with pytest.raises(TailraceError, match=r"tls\.cert\.file: is not set"):
        server_credentials(HERE, TlsSettings(ca_file=tls.ca_file))
    with pytest.raises(TailraceError, match=r"tls\.ca\.file: is not set"):
        server_credentials(HERE, replace(tls, ca_file=""))
    assert server_credentials(HERE, replace(tls, ca_file="", mutual=False)) is not None


def test_plain_text_is_refused_when_it_leaves_the_machine() -> None:
    for demand in (server_credentials, channel_credentials):
        with pytest.raises(TailraceError, match=r"security\.allow\.plaintext=true") as raised:
            demand(EVERYWHERE, None)
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert "tailrace certs create" in str(raised.value)
        assert demand(EVERYWHERE, None, allow_plaintext=True) is None
        for loopback in ("127.0.0.1", "127.9.9.9", "localhost", "::1"):
            assert demand(Address(loopback, 1), None) is None


async def _call(tls: TlsSettings | None, port: int, node_id: int | None = None) -> str:
    channel = GrpcTransport().channel(Address(LOOPBACK, port), tls=tls, node_id=node_id)
    try:
        return (await channel.unary(ECHO, StringValue(value="a"), 20)).value
    finally:
        await channel.close()


def _known(contexts: list[CallContext]) -> Service:
    async def who(request: StringValue, context: CallContext) -> StringValue:
        contexts.append(context)
        return request

    return service("Test", unary("Echo", StringValue, StringValue, who))


def test_caller_is_known_by_its_certificate_when_tls_is_mutual(
    tls: TlsSettings, tmp_path: Path, authority: Authority
) -> None:
    node = write(tmp_path, "node-2", authority.issue_node(2, [], days=1), authority)
    client = write(tmp_path, "client", authority.issue_client("reports", days=1), authority)

    async def main() -> None:
        contexts: list[CallContext] = []
        server = GrpcTransport().server([Listener(address=HERE, tls=tls)], [_known(contexts)])
        [port] = await server.start()
        await _call(node, port)
        await _call(client, port)
        assert [context.peer for context in contexts] == [
            PeerIdentity("tailrace-node-2", 2),
            PeerIdentity("reports", None),
        ]
        assert all(context.secure for context in contexts)
        for stranger in (TlsSettings(ca_file=tls.ca_file), None):
            with pytest.raises(TailraceError) as raised:
                await _call(stranger, port)
            assert raised.value.code is ErrorCode.CONNECTION_LOST
        assert len(contexts) == 2
        await server.stop(0)

    run(main)


def test_caller_needs_no_certificate_when_tls_is_not_mutual(tls: TlsSettings) -> None:
    async def main() -> None:
        contexts: list[CallContext] = []
        one_way = replace(tls, mutual=False)
        server = GrpcTransport().server([Listener(address=HERE, tls=one_way)], [_known(contexts)])
        [port] = await server.start()
        assert await _call(TlsSettings(ca_file=tls.ca_file), port) == "a"
        assert contexts[0].peer == (None, None)
        assert contexts[0].secure
        await server.stop(0)

    run(main)


def test_listeners_have_tls_of_their_own_when_a_server_has_several(tls: TlsSettings) -> None:
    async def main() -> None:
        contexts: list[CallContext] = []
        listeners = [Listener(address=HERE, tls=tls), Listener(address=HERE)]
        server = GrpcTransport().server(listeners, [_known(contexts)])
        secure, plain = await server.start()
        await _call(tls, secure)
        await _call(None, plain)
        assert [context.secure for context in contexts] == [True, False]
        await server.stop(0)

    run(main)


def test_call_fails_when_another_node_answers_than_was_meant(tls: TlsSettings) -> None:
    async def main() -> None:
        server = GrpcTransport().server([Listener(address=HERE, tls=tls)], [_known([])])
        [port] = await server.start()
        assert await _call(tls, port, node_id=1) == "a"
        with pytest.raises(TailraceError, match="Hostname Verification Check failed"):
            await _call(tls, port, node_id=2)
        await server.stop(0)

    run(main)


def test_new_certificate_is_used_without_restart_when_files_are_replaced(
    tls: TlsSettings, tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Node 1's listener is given node 5's files, which callers can tell apart."""
    renewed = authority.issue_node(5, [LOOPBACK], days=1)

    async def main() -> None:
        server = GrpcTransport().server([Listener(address=HERE, tls=tls)], [_known([])])
        [port] = await server.start()
        caller = write(tmp_path, "caller", authority.issue_client("caller", days=1), authority)
        assert await _call(caller, port, node_id=1) == "a"
        replace_file(tls.cert_file, renewed.certificate)  # The key does not belong to it yet.
        assert await _call(caller, port, node_id=1) == "a"
        assert any("tls_renewal_failed" in str(record.msg) for record in caplog.records)
        replace_file(tls.key_file, renewed.key)
        assert await _call(caller, port, node_id=5) == "a"
        await asyncio.gather(*(_call(caller, port, node_id=5) for _ in range(20)))
        await server.stop(0)

    run(main)
