"""Certificates with which a world stands in for *.googleapis.com."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tpuherd_sim.request_guard import NAMES
from tpuherd_sim.state_dir import write_atomically

LIFE = timedelta(days=800)
RENEW = timedelta(days=60)
PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
PLAIN = serialization.NoEncryption()


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateFiles:
    authority: Path  #: what clients must trust
    server: Path  #: certificate and key of the proxy


def ensure_certificates(folder: Path, now: float) -> CertificateFiles:
    """Return the world's certificates; create them if they are missing or about to expire."""
    found = CertificateFiles(authority=folder / "ca.pem", server=folder / "server.pem")
    moment = datetime.fromtimestamp(now, UTC)
    try:
        ends = x509.load_pem_x509_certificate(found.server.read_bytes()).not_valid_after_utc
        if ends - moment > RENEW and found.authority.exists():
            return found
    except (OSError, ValueError):
        pass  # missing or incomplete
    folder.mkdir(mode=0o700, exist_ok=True)
    authority, server = make_certificates(moment)
    write_atomically(found.authority, authority, mode=0o644)
    write_atomically(found.server, server)
    return found


def make_certificates(moment: datetime) -> tuple[bytes, bytes]:
    """Return a new authority's certificate, and the proxy's with its key.

    The authority's key is discarded, so that it can never sign another name.
    """
    above, below = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509_name("tpuherd: a simulated world on this machine")
    authority = (
        certificate_builder(issuer, issuer, above.public_key(), moment)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(above, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName(one) for one in NAMES])
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(above.public_key())
    front = (
        certificate_builder(x509_name(NAMES[0]), issuer, below.public_key(), moment)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(purposes, critical=False)
        .add_extension(names, critical=False)
        .add_extension(key_id, critical=False)
        .sign(above, hashes.SHA256())
    )
    secret = below.private_bytes(PEM, PKCS8, PLAIN)
    return authority.public_bytes(PEM), front.public_bytes(PEM) + secret


def x509_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, moment: datetime
) -> x509.CertificateBuilder:
    """Return a builder with the common fields; valid since yesterday, to allow for clock skew."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(days=1))
        .not_valid_after(moment + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the usage: an authority signs certificates, a server signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def tls_context(found: CertificateFiles) -> ssl.SSLContext:
    """Return the proxy's TLS settings: HTTP/1.1 only, so neither HTTP/2 nor gRPC."""
    front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    front.load_cert_chain(found.server)
    front.set_alpn_protocols(["http/1.1"])
    return front


def make_private_key() -> str:
    """Return a service account's private key, which gives no access to anything."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(PEM, PKCS8, PLAIN).decode()
