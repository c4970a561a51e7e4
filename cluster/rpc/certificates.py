"""Makes certificates: an authority of one's own, and what it issues to nodes and clients.

Used by `tailrace certs create`, and by tests that need real TLS. Keys are ECDSA on P-256: small, fast in a
handshake, and understood everywhere. A node's certificate serves both ends of a connection, since nodes call
each other; a client's certificate can only call. Nothing is written to disk here.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.identity import NODE_NAME_PREFIX, is_node_name, node_name

# Clocks of machines differ a little; a certificate is valid from shortly before it was made.
_BACKDATED = datetime.timedelta(hours=1)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)*{_LABEL}")
_MAX_COMMON_NAME = 64


class KeyPair(NamedTuple):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority: whoever holds its key decides who belongs to the cluster."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, *, name: str = "tailrace-ca", days: int, now: datetime.datetime | None = None) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = (
            _builder(subject, subject, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, pair: KeyPair) -> Self:
        """An authority made earlier; raises when the two do not belong together or are something else."""
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, None)
        except (ValueError, TypeError) as error:
            raise _invalid(f"the authority's certificate or key cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise _invalid("the authority's key does not belong to its certificate")
        return cls(certificate, key)

    @property
    def pair(self) -> KeyPair:
        return _pair(self._certificate, self._key)

    def check_outlives(self, days: int, now: datetime.datetime | None = None) -> None:
        """Raises when something issued for so many days would still be valid when the authority is not."""
        end = self._certificate.not_valid_after_utc
        left = (end - (now if now is not None else datetime.datetime.now(datetime.UTC))).days
        if days > left:
            raise _invalid(
                f"the authority itself is valid only until {end.date()}, another {left} days: give fewer than"
                f" {days} days, or make a new authority in another directory"
            )

    def issue_node(
        self, node_id: int, hosts: Sequence[str], *, days: int, now: datetime.datetime | None = None
    ) -> KeyPair:
        """A certificate for a node, valid for its identity and for the `hosts` that clients know it by."""
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        name = node_name(node_id)
        return self._issue(name, [x509.DNSName(name), *host_names(hosts)], usages, days, now)

    def issue_client(self, name: str, *, days: int, now: datetime.datetime | None = None) -> KeyPair:
        """A certificate with which a program calls nodes; `name` is its principal."""
        if is_node_name(name):
            raise _invalid(f"client name {name!r} must not begin with {NODE_NAME_PREFIX}: that is a node's")
        return self._issue(name, [], [ExtendedKeyUsageOID.CLIENT_AUTH], days, now)

    def _issue(
        self,
        name: str,
        names: list[x509.GeneralName],
        usages: list[x509.ObjectIdentifier],
        days: int,
        now: datetime.datetime | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(name), self._certificate.subject, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pair(builder.sign(self._key, hashes.SHA256()), key)


def host_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Each host as the entry of a certificate: an address or a DNS name, each once."""
    return [_host_name(host) for host in dict.fromkeys(hosts)]


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if is_node_name(host):
        raise _invalid(f"host {host!r} must not begin with {NODE_NAME_PREFIX}: it would be another identity")
    if len(host) > 253 or _HOST_NAME.fullmatch(host) is None:
        raise _invalid(f"host {host!r} is neither a host name nor an IP address (give it without a port)")
    return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime.datetime | None,
) -> x509.CertificateBuilder:
    if days < 1:
        raise _invalid(f"a certificate cannot be valid for {days} days; give 1 or more")
    moment = now if now is not None else datetime.datetime.now(datetime.UTC)
    try:
        end = moment + datetime.timedelta(days=days)
    except OverflowError:
        raise _invalid(f"a certificate cannot be valid for {days} days; give fewer") from None
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    if not common_name.strip() or len(common_name) > _MAX_COMMON_NAME:
        raise _invalid(f"name {common_name!r} must have 1 to {_MAX_COMMON_NAME} characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), private)


def _invalid(message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_CONFIG, message)
