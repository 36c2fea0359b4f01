"""Which package sources a host knows, and which addresses its proxy allows."""

import configparser
import ipaddress
import tomllib
from pathlib import Path

import pytest

from tpuherd_sim.host_services.package_proxy import ProxyRefusal, is_private, parse_request
from tpuherd_sim.host_services.packages import (
    PROXY,
    PackageSources,
    apt_conf,
    pip_conf,
    read_package_sources,
    uv_toml,
)


def test_package_settings_of_the_machine(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text(
        "[global]\nindex-url = https://mirror.example:8443/simple\ntrusted-host = a\n    b\n"
        "[install]\nextra-index-url = file:///opt/wheels\n    http://user:secret@x/simple\n"
        "    http://second.example/simple\n"
    )
    environ = {"PIP_CONFIG_FILE": str(conf), "HTTPS_PROXY": "http://up:3128", "NO_PROXY": ".a, b"}
    found = read_package_sources(environ, tmp_path)
    assert found.index_url == "https://mirror.example:8443/simple"
    assert found.extra_index_urls == ("http://second.example/simple",)
    assert found.trusted_hosts == ("a", "b")
    assert found.upstream == "http://up:3128"
    assert found.direct == ("a", "b")
    assert found.mirrors == {("mirror.example", 8443), ("second.example", 80)}
    bundle = tmp_path / "mine.pem"
    bundle.touch()
    assert read_package_sources({"PIP_CERT": str(bundle)}, tmp_path).ca_bundle is None
    assert read_package_sources({"PIP_CERT": "/etc/passwd"}, tmp_path).ca_bundle == "/etc/passwd"
    assert (
        read_package_sources({"PIP_INDEX_URL": "https://o/s"}, tmp_path).index_url == "https://o/s"
    )


def test_written_settings_can_be_read() -> None:
    packages = PackageSources(
        index_url="https://i/s", extra_index_urls=("https://e/s", "https://f/s"),
        trusted_hosts=("t",), ca_bundle="/etc/ca.crt",
    )  # fmt: skip
    pip = configparser.RawConfigParser()
    pip.read_string(pip_conf(packages))
    assert pip["global"]["proxy"] == PROXY
    assert pip["global"]["extra-index-url"].split() == ["https://e/s", "https://f/s"]
    assert pip["global"]["cert"] == "/etc/ca.crt"
    uv = tomllib.loads(uv_toml(packages))
    assert (uv["https-proxy"], uv["index-url"], uv["system-certs"]) == (PROXY, "https://i/s", True)
    assert tomllib.loads(uv_toml(PackageSources())) == {"http-proxy": PROXY, "https-proxy": PROXY}
    assert f'Acquire::http::Proxy "{PROXY}";' in apt_conf(packages)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True), ("127.64.0.3", True), ("10.1.2.3", True), ("172.31.0.1", True),
        ("192.168.1.1", True), ("169.254.169.254", True), ("0.0.0.0", True), ("100.64.1.1", True),
        ("::1", True), ("fe80::1", True), ("fd00::1", True), ("::ffff:127.0.0.1", True),
        ("224.0.0.1", True), ("172.32.0.1", False), ("8.8.8.8", False), ("2606:4700::1", False),
        ("::ffff:8.8.8.8", False),
    ],
)  # fmt: skip
def test_private_addresses(address: str, private: bool) -> None:
    assert is_private(ipaddress.ip_address(address)) is private


def test_requests_to_a_proxy() -> None:
    request = parse_request(b"CONNECT pypi.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (request.method, request.host, request.port) == ("CONNECT", "pypi.example", 443)
    request = parse_request(
        b"GET http://Deb.example/a?b=c HTTP/1.1\r\nHost: Deb.example\r\n"
        b"Proxy-Connection: keep-alive\r\nConnection: keep-alive\r\nRange: bytes=5-\r\n\r\n"
    )
    assert request.forwarded_head(request.path) == (
        b"GET /a?b=c HTTP/1.1\r\nHost: Deb.example\r\nRange: bytes=5-\r\nConnection: close\r\n\r\n"
    )
    assert parse_request(b"PUT http://h HTTP/1.1\r\nContent-Length: 7\r\n\r\n").body_bytes == 7


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://h/ HTTP/1.1\r\n\r\n",
        b"GET ftp://h/ HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"CONNECT :443 HTTP/1.1\r\n\r\n",
        b"CONNECT h:99999 HTTP/1.1\r\n\r\n",
        b"POST http://h/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST http://h/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_invalid_requests_to_a_proxy(head: bytes) -> None:
    with pytest.raises(ProxyRefusal):
        parse_request(head)
