"""Options of administrators: checked before anything is opened."""

from __future__ import annotations

import pytest

from tailrace import Admin, AsyncAdmin
from tailrace.clients.admin_config import AdminConfig, AdminOptions
from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.settings import ConfigError


def config(**options: object) -> AdminConfig:
    return AdminConfig.from_options(options)  # type: ignore[arg-type]


def test_controllers_may_be_one_text_or_a_list() -> None:
    wanted = (Address("a", 1), Address("::1", 2))
    assert config(bootstrap_controllers="a:1, [::1]:2").addresses == wanted
    assert config(bootstrap_controllers=["a:1", "[::1]:2"]).addresses == wanted


def test_defaults_are_those_documented() -> None:
    found = config(bootstrap_controllers="a:1")
    assert (found.request_timeout_ms, found.retry_backoff_ms, found.retry_backoff_max_ms) == (
        30_000,
        100,
        1_000,
    )
    assert (found.tls_ca_file, found.tls_cert_file, found.tls_key_file) == (None, None, None)
    assert found.allow_plaintext is False


@pytest.mark.parametrize("client", [Admin, AsyncAdmin])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "bootstrap.controllers: is not set"),
        ({"bootstrap_controllers": ""}, "bootstrap.controllers: is not set"),
        ({"bootstrap_controllers": []}, "bootstrap.controllers: is not set"),
        ({"bootstrap_controllers": "a"}, "host:port"),
        ({"bootstrap_controllers": "a:99999"}, "host:port"),
        ({"bootstrap_controllers": "a:1,a:1"}, "twice"),
        ({"bootstrap_servers": "a:1"}, "not yet supported: brokers do not answer administrators"),
        ({"bootstrap_controllers": "a:1", "bootstrap_servers": "a:1"}, "give bootstrap_controllers"),
        ({"bootstrap_controllers": "a:1", "request_timeout": 1}, "did you mean request.timeout.ms?"),
        ({"bootstrap_controllers": "a:1", "request_timeout_ms": 0}, "request.timeout.ms: 0 is not possible"),
        ({"bootstrap_controllers": "a:1", "tls_cert_file": "c"}, "give both or none"),
        ({"bootstrap_controllers": "a:1", "retry_backoff_ms": 9_999}, "retry.backoff.max.ms"),
        ({"bootstrap_controllers": "a:1", "sasl_mechanism": "PLAIN"}, "not yet supported"),
    ],
)
def test_options_are_refused_with_the_reason(
    client: type[Admin | AsyncAdmin], options: AdminOptions, told: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        client(**options)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert told in str(raised.value)


def test_options_of_the_types_are_those_of_the_settings() -> None:
    assert set(AdminOptions.__annotations__) == {one.field for one in AdminConfig.settings()}
