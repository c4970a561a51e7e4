"""Certificates that we make: what stands in them, and what is refused."""

from __future__ import annotations

import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.rpc.certificates import Authority, KeyPair

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create(days=365, now=NOW)


def parsed(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_node_has_its_name_hosts_and_addresses_when_it_is_issued(authority: Authority) -> None:
    pair = authority.issue_node(3, ["Broker-3.example", "10.0.0.3", "::1", "10.0.0.3"], days=30, now=NOW)
    certificate = parsed(pair)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["tailrace-node-3", "Broker-3.example"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("10.0.0.3"),
        ipaddress.ip_address("::1"),
    ]
    assert usages(certificate) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert certificate.not_valid_after_utc == NOW + datetime.timedelta(days=30)
    assert certificate.not_valid_before_utc < NOW
    certificate.verify_directly_issued_by(parsed(authority.pair))


def test_client_can_only_call_when_it_is_issued(authority: Authority) -> None:
    certificate = parsed(authority.issue_client("reports", days=30, now=NOW))
    assert usages(certificate) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    assert certificate.subject.rfc4514_string() == "CN=reports"
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_only_the_authority_may_issue_when_constraints_are_checked(authority: Authority) -> None:
    for pair, expected in ((authority.pair, True), (authority.issue_client("a", days=1, now=NOW), False)):
        extensions = parsed(pair).extensions
        assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is expected
        assert extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is expected


def test_authority_issues_again_when_it_was_loaded_from_its_files(authority: Authority) -> None:
    loaded = Authority.load(authority.pair)
    parsed(loaded.issue_node(1, [], days=1, now=NOW)).verify_directly_issued_by(parsed(authority.pair))


def test_authority_is_not_loaded_when_its_files_do_not_belong_together(authority: Authority) -> None:
    other = Authority.create(days=1)
    with pytest.raises(TailraceError, match="does not belong to its certificate"):
        Authority.load(KeyPair(authority.pair.certificate, other.pair.key))
    with pytest.raises(TailraceError, match="cannot be read"):
        Authority.load(KeyPair(b"nothing", authority.pair.key))


@pytest.mark.parametrize(
    "host", ["", "a b", "host:9092", "-x", "http://x", "x" * 64, "*", "a.*.b", "tailrace-node-2"]
)
def test_host_is_refused_when_it_cannot_stand_in_a_certificate(authority: Authority, host: str) -> None:
    with pytest.raises(TailraceError, match="host"):
        authority.issue_node(1, [host], days=1)


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "tailrace-node-2", "Tailrace-Node-2"])
def test_client_is_refused_when_its_name_is_not_possible(authority: Authority, name: str) -> None:
    with pytest.raises(TailraceError, match="name"):
        authority.issue_client(name, days=1)


@pytest.mark.parametrize("days", [0, -1, 10**9])
def test_certificate_is_refused_when_its_time_is_not_possible(authority: Authority, days: int) -> None:
    with pytest.raises(TailraceError, match="cannot be valid for"):
        authority.issue_client("a", days=days)
