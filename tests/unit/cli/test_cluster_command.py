"""What commands on a cluster share: where the cluster is, and how they end when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.clients.cli.cluster_command import BOOTSTRAP_VARIABLE, UNREAD, Output
from tailrace.cluster.rpc.certificates import Authority, KeyPair
from tailrace.cluster.rpc.tls import TlsSettings
from tests.unit.cli.clusters import HOST, CommandCluster, command_cluster, invoke

COMMAND = [sys.executable, "-c", "from tailrace.clients.cli.main import main; main()"]


@pytest.fixture
def cluster() -> Iterator[CommandCluster]:
    with command_cluster() as made:
        made.output("topics", "create", "--topic", "t")
        yield made


def config_file(path: Path, **settings: object) -> str:
    path.write_text(
        "".join(f"{key.replace('_', '.')} = {json.dumps(value)}\n" for key, value in settings.items())
    )
    return str(path)


def test_cluster_is_found_by_option_variable_or_file(cluster: CommandCluster, tmp_path: Path) -> None:
    file = config_file(tmp_path / "client.toml", bootstrap_controllers=cluster.address)
    wrong = config_file(tmp_path / "wrong.toml", bootstrap_controllers="127.0.0.1:1")
    for done in (
        invoke("topics", "list", "--bootstrap-controller", cluster.address),
        invoke("topics", "list", env={BOOTSTRAP_VARIABLE: cluster.address}),
        invoke("topics", "list", "--command-config", file),
        invoke("topics", "list", "--command-config", wrong, "--bootstrap-controller", cluster.address),
    ):
        assert (done.exit_code, done.stdout) == (0, "t\n"), done.output


def test_command_says_what_to_give_when_no_cluster_is_named() -> None:
    done = invoke("topics", "list")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--bootstrap-controller HOST:PORT" in done.stderr
    assert BOOTSTRAP_VARIABLE in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bootstrap.servers = 'a:1'", "brokers do not answer administrators"),
        ("bootstrap.controllers = 'a:1'\ntls.ca.fil = 'x'", "did you mean tls.ca.file?"),
        ("bootstrap.controllers = 'a'", "host:port"),
        ("bootstrap.controllers = ", "cannot be read"),
        (
            "bootstrap.controllers = '127.0.0.1:1'\ntls.ca.file = 'nowhere.pem'",
            "there is no file nowhere.pem",
        ),
        ("bootstrap.controllers = '192.0.2.1:1'", "plain text beyond this machine"),
    ],
)
def test_file_of_options_is_refused_with_the_reason(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "client.toml"
    file.write_text(text)
    done = invoke("topics", "list", "--command-config", str(file))
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_file_of_options_that_is_missing_is_named(tmp_path: Path) -> None:
    done = invoke("topics", "list", "--command-config", str(tmp_path / "gone.toml"))
    assert done.exit_code == 2
    assert "gone.toml): cannot be read: No such file or directory" in done.stderr


def test_command_ends_with_2_when_nobody_answers(tmp_path: Path) -> None:
    file = config_file(tmp_path / "client.toml", bootstrap_controllers="127.0.0.1:1", request_timeout_ms=300)
    done = invoke("topics", "list", "--command-config", file, "--json")
    assert done.exit_code == 2
    [event] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (event["type"], event["item"], event["code"]) == ("error", None, "REQUEST_TIMED_OUT")
    assert "127.0.0.1:1: CONNECTION_LOST" in event["message"]
    assert event["message"] in done.stderr


@pytest.mark.parametrize(
    "arguments", [["topics", "list"], ["topics", "describe"], ["brokers", "list", "--json"]]
)
def test_command_ends_quietly_when_nobody_reads_its_output(
    cluster: CommandCluster, arguments: list[str]
) -> None:
    nobody, output = os.pipe()
    os.close(nobody)
    command = [*COMMAND, *arguments, "--bootstrap-controller", cluster.address]
    try:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(output)
    assert (done.returncode, done.stderr) == (UNREAD, b"")


def test_name_that_is_no_text_is_refused(cluster: CommandCluster) -> None:
    command = [*COMMAND, "topics", "create", "--bootstrap-controller", cluster.address, "--topic"]
    done = subprocess.run(
        [*map(os.fsencode, command), b"\xff\xfe"], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"is not text; give it in UTF-8" in done.stderr


def test_table_shows_text_as_it_is_and_never_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    Output(as_json=False).table(["name", "value>"], [["[bold]a[/bold]", ":smile:"], ["\x1b[31m", long]])
    shown = capsys.readouterr().out
    assert "[bold]a[/bold]" in shown
    assert ":smile:" in shown
    assert "\\x1b[31m" in shown
    assert "\x1b" not in shown
    assert long in shown


def write_pair(directory: Path, name: str, pair: KeyPair) -> tuple[str, str]:
    cert, key = directory / f"{name}.crt", directory / f"{name}.key"
    cert.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return str(cert), str(key)


def test_command_speaks_tls_with_certificates(tmp_path: Path) -> None:
    authority = Authority.create(days=1)
    ca, _ = write_pair(tmp_path, "ca", authority.pair)
    node_cert, node_key = write_pair(tmp_path, "node", authority.issue_node(1, [HOST], days=1))
    cert, key = write_pair(tmp_path, "client", authority.issue_client("operator", days=1))
    with command_cluster(TlsSettings(cert_file=node_cert, key_file=node_key, ca_file=ca)) as cluster:
        good = config_file(tmp_path / "good.toml", tls_ca_file=ca, tls_cert_file=cert, tls_key_file=key)
        assert cluster.output("topics", "create", "--topic", "t", "--command-config", good)
        assert cluster.output("topics", "list", "--command-config", good) == "t\n"
        stranger = config_file(tmp_path / "bad.toml", tls_ca_file=ca, request_timeout_ms=300)
        done = cluster.invoke("topics", "list", "--command-config", stranger)
        assert (done.exit_code, done.stdout) == (2, "")
        plain = config_file(tmp_path / "plain.toml", request_timeout_ms=300)
        done = cluster.invoke("topics", "list", "--command-config", plain)
        assert (done.exit_code, done.stdout) == (2, "")
