"""`tailrace certs create`: the files it makes, what it says, and what it never overwrites."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner, Result

from tailrace.clients.cli.main import app
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.tls import TlsSettings, load_tls_files


def create(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["certs", "create", "--dir", str(directory), *arguments])


def made(directory: Path, *arguments: str) -> str:
    result = create(directory, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(directory: Path, *arguments: str) -> str:
    """The message; that the command left every file as it was is checked too."""
    before = contents(directory)
    result = create(directory, *arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, TailraceError)
    assert result.exception.code is ErrorCode.INVALID_CONFIG
    assert contents(directory) == before
    return str(result.exception)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()} if directory.exists() else {}


def settings_after(output: str, heading: str) -> TlsSettings:
    """What the command says to put into a configuration, read as the configuration is read."""
    lines = output.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(heading)) + 1
    values = tomllib.loads("\n".join(line.strip() for line in lines[begin : begin + 3]))
    return TlsSettings(
        cert_file=values["tls.cert.file"], key_file=values["tls.key.file"], ca_file=values["tls.ca.file"]
    )


def names(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in extension.get_values_for_type(x509.IPAddress)]
    return extension.get_values_for_type(x509.DNSName) + addresses


def test_files_work_as_they_are_named_when_a_set_is_made(tmp_path: Path) -> None:
    output = made(tmp_path / "a b", "--node", "1", "--node", "2")
    for node_id in (1, 2):
        files = load_tls_files(settings_after(output, f"In node.toml of node {node_id},"))
        assert files.node_id == node_id
    assert load_tls_files(settings_after(output, "For client client:")).node_id is None
    assert sorted(contents(tmp_path / "a b")) == [
        "ca.crt",
        "ca.key",
        "client.crt",
        "client.key",
        "node-1.crt",
        "node-1.key",
        "node-2.crt",
        "node-2.key",
    ]


def test_keys_are_readable_by_their_owner_alone_when_they_are_made(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made(tmp_path / "certs", "--node", "1")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certs").iterdir()}
    assert {mode for name, mode in modes.items() if name.endswith(".key")} == {0o600}
    assert {mode for name, mode in modes.items() if name.endswith(".crt")} == {0o644}
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700


def test_node_has_its_own_and_the_shared_hosts_when_they_are_named(tmp_path: Path) -> None:
    made(
        tmp_path, "--node", "1=one.example,10.0.0.1", "--node", "2", "--host", "all.example", "--host", "::1"
    )
    assert names(tmp_path / "node-1.crt") == [
        "tailrace-node-1",
        "one.example",
        "all.example",
        "10.0.0.1",
        "::1",
    ]
    assert names(tmp_path / "node-2.crt") == ["tailrace-node-2", "all.example", "::1"]
    made(tmp_path, "--node", "3")
    assert names(tmp_path / "node-3.crt") == ["tailrace-node-3", "localhost", "127.0.0.1", "::1"]


def test_same_authority_issues_more_when_a_node_is_added(tmp_path: Path) -> None:
    made(tmp_path, "--node", "1")
    before = contents(tmp_path)
    output = made(tmp_path, "--node", "2", "--client", "reports")
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"node-2.crt", "node-2.key", "reports.crt", "reports.key"}
    assert load_tls_files(settings_after(output, "In node.toml of node 2,")).node_id == 2
    assert "the authority" not in output


def test_nothing_is_overwritten_when_force_is_not_given(tmp_path: Path) -> None:
    made(tmp_path, "--node", "1")
    message = refused(tmp_path, "--node", "2", "--node", "1")
    assert "node-1.crt" in message
    assert "--force" in message


def test_certificates_but_not_the_authority_are_replaced_when_force_is_given(tmp_path: Path) -> None:
    made(tmp_path, "--node", "1")
    before = contents(tmp_path)
    made(tmp_path, "--node", "1", "--force")
    after = contents(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"node-1.crt", "node-1.key"}
    assert after.keys() == before.keys()


def test_authority_is_not_made_anew_when_half_of_it_is_missing(tmp_path: Path) -> None:
    made(tmp_path, "--node", "1")
    (tmp_path / "ca.key").unlink()
    message = refused(tmp_path, "--node", "2", "--force")
    assert "ca.key" in message
    assert "both" in message


def test_days_are_refused_when_the_authority_does_not_live_so_long(tmp_path: Path) -> None:
    made(tmp_path, "--node", "1", "--days", "10")
    assert "valid only until" in refused(tmp_path, "--node", "2", "--days", "5000")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--node", "x"], "write a node id"),
        (["--node", "-1"], "write a node id"),
        (["--node", "2147483648"], "write a node id"),
        (["--node", "1", "--node", "1=a"], "named twice"),
        (["--node", "1=a b"], "neither a host name nor an IP address"),
        (["--node", "1=a:9092"], "without a port"),
        (["--node", "1", "--host", "tailrace-node-2"], "another identity"),
        (["--node", "1", "--client", "../evil"], "becomes that of files"),
        (["--node", "1", "--client", ".hidden"], "becomes that of files"),
        (["--node", "1", "--client", "ca"], "choose another"),
        (["--node", "1", "--client", "node-1"], "choose another"),
        (["--node", "1", "--client", "tailrace-node-2"], "a node's"),
    ],
)
def test_nothing_is_written_when_an_argument_is_wrong(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    assert said in refused(tmp_path / "certs", *arguments)
    assert not (tmp_path / "certs").exists()


def test_directory_is_named_when_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert str(tmp_path / "file") in refused(tmp_path / "file" / "certs", "--node", "1")
