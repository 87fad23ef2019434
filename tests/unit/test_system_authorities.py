"""--cacert system: where certificates are read, and which of what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from downloader.cluster.plan import configs
from downloader.config import system_authorities
from downloader.config.config import Config
from downloader.config.system_authorities import (
    Places,
    certificates,
    certificates_in,
    read_system_authorities,
)
from downloader.errors import ConfigError

DEFAULTS = ("SSL_CERT_FILE", "/built/cert.pem", "SSL_CERT_DIR", "/built/certs")


def pem(text: str, kind: str = "CERTIFICATE", end: str = "\n") -> bytes:
    return f"-----BEGIN {kind}-----{end}{text}{end}-----END {kind}-----{end}".encode()


@pytest.mark.parametrize(
    ("environment", "places"),
    [
        ({}, Places("/built/cert.pem", ("/built/certs",))),
        ({"SSL_CERT_FILE": "/f"}, Places("/f", ("/built/certs",), "SSL_CERT_FILE")),
        ({"SSL_CERT_DIR": "/d:/e"}, Places("/built/cert.pem", ("/d", "/e"), "", "SSL_CERT_DIR")),
        ({"SSL_CERT_FILE": "", "SSL_CERT_DIR": ""}, Places("", ())),
    ],
)
def test_variables_replace_the_paths_that_are_built_in(environment: dict[str, str], places: Places) -> None:
    assert Places.of(DEFAULTS, environment) == places


def test_each_certificate_is_taken_once_and_nothing_else() -> None:
    text = b"# A comment\n" + pem("one") + pem("a", "X509 CRL") + pem("two", "TRUSTED CERTIFICATE")
    text += pem("k", "PRIVATE KEY") + b"-----BEGIN CERTIFICATE-----\ncut"
    assert certificates_in(text) == [pem("one"), pem("two", "TRUSTED CERTIFICATE")]
    assert certificates([text, pem("one", end="\r\n"), pem("three")]) == (
        pem("one") + pem("two", "TRUSTED CERTIFICATE") + pem("three")
    )


def asked(directory: Path) -> list[str]:
    return ["SSL_CERT_FILE", str(directory / "cert.pem"), "SSL_CERT_DIR", str(directory / "certs")]


def test_file_and_directory_are_read(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_bytes(pem("one"))
    certs = tmp_path / "certs"
    certs.mkdir()
    (certs / "0123abcd.0").write_bytes(pem("one"))
    (certs / "0123abcd.1").write_bytes(pem("two"))
    (certs / "company.crt").write_bytes(pem("not found by OpenSSL either"))
    (certs / "ffffffff.0").symlink_to(tmp_path / "removed")
    assert read_system_authorities({}, lambda: asked(tmp_path)) == pem("one") + pem("two")


def test_a_self_built_openssl_without_certificates_uses_those_of_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "ca-certificates.crt"
    hashed = tmp_path / "usual"
    hashed.mkdir()
    (hashed / "0123abcd.0").write_bytes(pem("of the directory"))
    monkeypatch.setattr(system_authorities, "_USUAL_FILES", ("/nowhere", str(usual)))
    monkeypatch.setattr(system_authorities, "_USUAL_DIRECTORIES", ("/nowhere", str(hashed)))
    assert read_system_authorities({}, lambda: asked(tmp_path)) == pem("of the directory")
    usual.write_bytes(pem("of the file"))
    assert read_system_authorities({}, lambda: asked(tmp_path)) == pem("of the file")
    monkeypatch.setattr(system_authorities, "_USUAL_FILES", ())
    monkeypatch.setattr(system_authorities, "_USUAL_DIRECTORIES", ())
    with pytest.raises(ConfigError, match=r"no CA certificates, neither in .*cert\.pem and .*certs nor"):
        read_system_authorities({}, lambda: asked(tmp_path))


def test_nothing_else_is_trusted_where_a_variable_leads_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE is /nowhere, which cannot be read \(No such"):
        read_system_authorities({"SSL_CERT_FILE": "/nowhere"}, lambda: asked(tmp_path))
    with pytest.raises(ConfigError, match=r"where SSL_CERT_DIR leads OpenSSL.*openssl rehash"):
        read_system_authorities({"SSL_CERT_DIR": str(tmp_path)}, lambda: asked(tmp_path))


def test_slices_have_the_certificates_of_the_machine_that_planned_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(pem("one"))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", "")
    config = Config(source="https://host.test", output=str(tmp_path / "d"), cacert="system")
    text = configs.for_slices(config, 1, 1, 0).encode()
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    again = Config.decode(text)
    assert again.files is not None
    assert (again.cacert, again.files.cacert) == ("system", pem("one"))


def test_a_path_object_is_never_the_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("system").write_bytes(pem("mine"))
    for given in (Path("system"), "./system"):
        config = Config(source="https://host.test", output="d", cacert=given)
        assert config.files is not None
        assert config.files.cacert == pem("mine")
        assert ("--cacert", "./system") in config.own_files
    assert "--cacert" not in dict(Config(source="https://host.test", output="d", cacert="system").own_files)
