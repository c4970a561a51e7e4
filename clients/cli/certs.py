"""`tailrace certs`: makes the certificates of a cluster.

One directory holds an authority and what it has issued. The first call makes the authority; later ones add
certificates with it, or replace them with `--force`. The authority itself is never replaced: that would cut
off every node that holds one of its certificates. Nothing is written before everything is known to be
possible.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tailrace.cluster.common.errors import ErrorCode, TailraceError

if TYPE_CHECKING:
    from tailrace.cluster.rpc.certificates import Authority, KeyPair

app = typer.Typer(no_args_is_help=True, help="Make the certificates of a cluster.")

_AUTHORITY = "ca"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_AUTHORITY_DAYS = 3650
_DEFAULT_DAYS = 365
_PRIVATE, _PUBLIC = 0o600, 0o644


class Wanted(NamedTuple):
    """A node that is to get a certificate, and the hosts that it is for."""

    node_id: int
    hosts: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"


@app.callback()
def _group() -> None:
    """Keeps `create` a command of its own, also while it is the only one."""


@app.command("create")
def create_command(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the files are, or are made.")
    ],
    node: Annotated[
        list[str],
        typer.Option("--node", metavar="ID[=HOST,...]", help="A node, with hosts of its own. Repeatable."),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A host name or IP address that every node named here is reached by. Repeatable.",
            show_default="localhost, 127.0.0.1 and ::1",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client",
            metavar="NAME",
            help="A client's certificate. Repeatable.",
            show_default="`client`, when the authority is new",
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, help="How long the certificates are valid.")
    ] = _DEFAULT_DAYS,
    force: Annotated[
        bool, typer.Option("--force", help="Replace certificates of nodes and clients that are there.")
    ] = False,
) -> None:
    """Make certificates for nodes and clients, and the authority that vouches for them."""
    nodes = [_wanted(text, tuple(host or ())) for text in node]
    is_new = not _exists(directory, _AUTHORITY)
    clients = list(dict.fromkeys(client if client is not None else ["client"] if is_new else []))
    _check_names(nodes, clients)
    if not force:
        _refuse_overwriting(directory, [*(one.name for one in nodes), *clients])
    authority = _authority(directory, is_new, days)
    pairs = {one.name: authority.issue_node(one.node_id, one.hosts, days=days) for one in nodes}
    pairs |= {name: authority.issue_client(name, days=days) for name in clients}
    _write(directory, ({_AUTHORITY: authority.pair} if is_new else {}) | pairs)
    typer.echo(_report(directory, nodes, clients, is_new=is_new))


def _wanted(text: str, shared_hosts: tuple[str, ...]) -> Wanted:
    number, _, own = text.partition("=")
    if not (number.isascii() and number.isdigit()) or int(number) > 2**31 - 1:
        raise _unusable(f"--node {text}: write a node id, or ID=HOST,HOST for hosts of its own")
    hosts = tuple(host.strip() for host in own.split(",")) if own else ()
    return Wanted(int(number), (*hosts, *shared_hosts) or _LOCAL_HOSTS)


def _check_names(nodes: Sequence[Wanted], clients: Sequence[str]) -> None:
    ids = [one.node_id for one in nodes]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise _unusable(f"node {twice[0]} is named twice; give all its hosts at once (--node {twice[0]}=A,B)")
    for name in clients:
        safe = name.replace("-", "").replace("_", "").replace(".", "")
        if not (safe.isascii() and safe.isalnum()) or name.startswith("."):
            raise _unusable(
                f"--client {name}: its name becomes that of files; use letters, digits, -, _ and ."
            )
        if name == _AUTHORITY or name.startswith("node-"):
            raise _unusable(f"--client {name}: that is the name of other files here; choose another")


def _refuse_overwriting(directory: Path, names: Sequence[str]) -> None:
    there = [path for name in names for path in _paths(directory, name) if path.exists()]
    if there:
        raise _unusable(
            f"{', '.join(map(str, there))} would be overwritten; nothing was written. Give --force to replace"
            " certificates, or another --dir"
        )


def _authority(directory: Path, is_new: bool, days: int) -> Authority:
    from tailrace.cluster.rpc.certificates import Authority, KeyPair  # noqa: PLC0415  (takes a while to import)

    if is_new:
        return Authority.create(days=max(_AUTHORITY_DAYS, days))
    certificate, key = _paths(directory, _AUTHORITY)
    try:
        authority = Authority.load(KeyPair(certificate.read_bytes(), key.read_bytes()))
    except OSError as error:
        raise _unusable(
            f"{error.filename}: {error.strerror}. The authority there issues the certificates, so both"
            f" {certificate.name} and {key.name} are needed"
        ) from None
    authority.check_outlives(days)
    return authority


def _write(directory: Path, pairs: dict[str, KeyPair]) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, pair in pairs.items():
            certificate, key = _paths(directory, name)
            _replace(key, pair.key, _PRIVATE)
            _replace(certificate, pair.certificate, _PUBLIC)
    except OSError as error:
        raise _unusable(f"{error.filename}: {error.strerror}") from None


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others for a moment."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    beside.chmod(mode)  # Whatever the umask is.
    beside.replace(path)


def _report(directory: Path, nodes: Sequence[Wanted], clients: Sequence[str], *, is_new: bool) -> str:
    where = directory.resolve()
    ca = json.dumps(str(where / f"{_AUTHORITY}.crt"))
    lines = [f"Made in {where}:"]
    if is_new:
        lines.append("  ca.crt, ca.key: the authority. Who has ca.key can add nodes: keep it off the nodes.")
    for one in nodes:
        lines.append(f"  {one.name}.crt, {one.name}.key: node {one.node_id} at {', '.join(one.hosts)}")
    lines += [f"  {name}.crt, {name}.key: client {name}" for name in clients]
    for one in nodes:
        lines += ["", f"In node.toml of node {one.node_id}, with the three files on its machine:"]
        lines += _settings(where, one.name, ca)
    for name in clients:
        lines += ["", f"For client {name}:"]
        lines += _settings(where, name, ca)
    return "\n".join(lines)


def _settings(where: Path, name: str, ca: str) -> list[str]:
    certificate, key = (json.dumps(str(path)) for path in _paths(where, name))
    return [
        f'  "tls.cert.file" = {certificate}',
        f'  "tls.key.file" = {key}',
        f'  "tls.ca.file" = {ca}',
    ]


def _paths(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.crt", directory / f"{name}.key"


def _exists(directory: Path, name: str) -> bool:
    return any(path.exists() for path in _paths(directory, name))


def _unusable(message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_CONFIG, message)
