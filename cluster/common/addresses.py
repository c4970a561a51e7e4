"""Addresses of listeners and peers, and which of them never leave the machine. Pure."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, Self

from tailrace.cluster.common.errors import ErrorCode, TailraceError


class Address(NamedTuple):
    """A host (name or IP address, without brackets) and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `host:port`; an IPv6 address stands in brackets, as in `[::1]:9092`."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        well_formed = colon and host and port.isascii() and port.isdigit() and int(port) <= 65535
        if not well_formed or (":" in host and not bracketed) or not host.isprintable() or " " in host:
            raise TailraceError(
                ErrorCode.INVALID_CONFIG,
                f"{text!r} is no address: write host:port, with an IPv6 address in brackets ([::1]:9092)",
            )
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """True only for what surely stays on this machine: a name may resolve to anything."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
