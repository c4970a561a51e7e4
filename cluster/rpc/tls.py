"""TLS of listeners and connections: files on disk become credentials, or an error that names the setting.

Plain text is possible on loopback, and elsewhere only when somebody asked for it (`allow_plaintext`),
because a port that takes commands from anyone should never be the result of leaving settings out.

Certificates are renewed without a restart: new connections use the files as they are then. If renewed files
cannot be used (a key that does not belong to its certificate, because only one of them has been replaced
yet), the ones in use stay, and the log says why.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.identity import node_id_of
from tailrace.cluster.runtime.logs import get_logger

CERT_SETTING = "tls.cert.file"
KEY_SETTING = "tls.key.file"
CA_SETTING = "tls.ca.file"
PLAINTEXT_SETTING = "security.allow.plaintext"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Where certificate, key and authority are; "" stands for none.

    A listener needs a certificate with its key. A caller needs them only where the listener is mutual.
    Without an authority a caller trusts the well-known public ones.
    """

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    mutual: bool = True
    """A listener takes only callers that show a certificate of the authority; so it is between nodes."""


class TlsFiles(NamedTuple):
    """The content of the files, checked to belong together."""

    cert: bytes
    key: bytes
    ca: bytes
    node_id: int | None
    """The node that the certificate is for; None when it is not a node's."""


def server_credentials(
    address: Address, tls: TlsSettings | None, *, allow_plaintext: bool = False
) -> grpc.ServerCredentials | None:
    """What a listener on `address` demands; None for plain text."""
    if tls is None:
        _demand_plaintext_allowed("the listener", address, allow_plaintext)
        return None
    if not tls.cert_file:
        raise _invalid(CERT_SETTING, f"is not set, but the listener {address} needs a certificate for TLS")
    if tls.mutual and not tls.ca_file:
        raise _invalid(
            CA_SETTING, f"is not set, but the listener {address} must check its callers against it"
        )
    renewal = _Renewal(tls)
    return grpc.dynamic_ssl_server_credentials(
        renewal.load(), cast(Any, renewal.fetch), require_client_authentication=tls.mutual
    )


def channel_credentials(
    address: Address, tls: TlsSettings | None, *, allow_plaintext: bool = False
) -> grpc.ChannelCredentials | None:
    """With what a connection to `address` is made; None for plain text."""
    if tls is None:
        _demand_plaintext_allowed("the connection to", address, allow_plaintext)
        return None
    files = load_tls_files(tls)
    return grpc.ssl_channel_credentials(files.ca or None, files.key or None, files.cert or None)


def load_tls_files(tls: TlsSettings, now: datetime.datetime | None = None) -> TlsFiles:
    """Reads and checks the files; raises INVALID_CONFIG with the setting that is wrong and what to do."""
    if bool(tls.cert_file) != bool(tls.key_file):
        missing, given = (KEY_SETTING, CERT_SETTING) if tls.cert_file else (CERT_SETTING, KEY_SETTING)
        raise _invalid(missing, f"is not set, but {given} is; a certificate works only with its key")
    ca = _read(CA_SETTING, tls.ca_file)
    authorities = _certificates(CA_SETTING, tls.ca_file, ca) if ca else []
    if not tls.cert_file:
        return TlsFiles(b"", b"", ca, None)
    cert = _read(CERT_SETTING, tls.cert_file)
    key = _read(KEY_SETTING, tls.key_file)
    chain = _certificates(CERT_SETTING, tls.cert_file, cert)
    _check_key(tls, chain[0], key)
    _check_validity(tls, chain[0], now if now is not None else datetime.datetime.now(datetime.UTC))
    if tls.mutual and authorities:
        _check_issuer(tls, chain, authorities)
    return TlsFiles(cert, key, ca, node_id_of(_dns_names(chain[0])))


class _Renewal:
    """Reads the certificates of a listener again when the files have changed. Called by gRPC's threads.

    gRPC asks at every handshake and frees what it is given, so each object is handed out once and None stands
    for "as before"; the same object given twice is freed twice, and the process dies.
    """

    def __init__(self, tls: TlsSettings) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._stamp = self._stamps()

    def load(self) -> grpc.ServerCertificateConfiguration:
        files = load_tls_files(self._tls)
        return grpc.ssl_server_certificate_configuration([(files.key, files.cert)], files.ca or None)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            stamp = self._stamps()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
        try:
            renewed = self.load()
        except TailraceError as error:
            log.error("tls_renewal_failed", cert_file=self._tls.cert_file, error=str(error))
            return None
        log.info("tls_certificate_renewed", cert_file=self._tls.cert_file)
        return renewed

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in (self._tls.cert_file, self._tls.key_file, self._tls.ca_file):
            with contextlib.suppress(OSError):
                status = Path(path).stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return stamps


def _demand_plaintext_allowed(what: str, address: Address, allow_plaintext: bool) -> None:
    if allow_plaintext or address.is_loopback:
        return
    raise TailraceError(
        ErrorCode.INVALID_CONFIG,
        f"{what} {address} would use plain text beyond this machine: set {CERT_SETTING}, {KEY_SETTING} and"
        f" {CA_SETTING} (`tailrace certs create` makes the files), or set {PLAINTEXT_SETTING}=true if the"
        " network itself keeps strangers out",
    )


def _read(setting: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise _invalid(setting, f"there is no file {path}; `tailrace certs create` makes one") from None
    except PermissionError:
        raise _invalid(setting, f"this process may not read {path}; check its owner and mode") from None
    except OSError as error:
        raise _invalid(setting, f"{path} cannot be read: {error.strerror or error}") from None
    if not data.strip():
        raise _invalid(setting, f"{path} is empty")
    return data


def _certificates(setting: str, path: str, data: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise _invalid(setting, f"{path} holds no certificate in PEM form") from None


def _check_key(tls: TlsSettings, certificate: x509.Certificate, data: bytes) -> None:
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError:
        raise _invalid(
            KEY_SETTING, f"{tls.key_file} is protected by a password; give it without one"
        ) from None
    except ValueError:
        raise _invalid(KEY_SETTING, f"{tls.key_file} holds no private key in PEM form") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise _invalid(
            KEY_SETTING, f"{tls.key_file} is not the key of the certificate {tls.cert_file} ({CERT_SETTING})"
        )


def _check_validity(tls: TlsSettings, certificate: x509.Certificate, now: datetime.datetime) -> None:
    if now > certificate.not_valid_after_utc:
        ended = certificate.not_valid_after_utc.isoformat()
        raise _invalid(CERT_SETTING, f"{tls.cert_file} has expired ({ended}); replace it by a new one")
    if now < certificate.not_valid_before_utc:
        begins = certificate.not_valid_before_utc.isoformat()
        raise _invalid(CERT_SETTING, f"{tls.cert_file} is valid only from {begins}; check the clock")


def _check_issuer(
    tls: TlsSettings, chain: list[x509.Certificate], authorities: list[x509.Certificate]
) -> None:
    """Between nodes one authority stands for all, so a certificate that it did not issue would never work."""
    if any(_issued(link, issuer) for link in chain for issuer in authorities):
        return
    raise _invalid(
        CERT_SETTING, f"{tls.cert_file} was not issued by an authority in {tls.ca_file} ({CA_SETTING})"
    )


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _dns_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _invalid(setting: str, message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_CONFIG, f"{setting}: {message}")
