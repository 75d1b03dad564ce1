"""A certificate for one cluster: made when it starts, kept in memory, trusted by its parts only."""

import datetime
import importlib

from gputui.fleet.deploy.start_agent import IMPORTING
from gputui.protocol.agent import Credentials

COMMON_NAME = "dask-internal"
"""As `distributed.Security.temporary()` names it (distributed 2026.8)."""

VALID_FROM = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
VALID_UNTIL = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
"""A cluster's certificate ends with its head, not with a clock that jumps."""


def make_certificate(dask_config_json: str = "{}") -> Credentials:
    """Return a new certificate that is its own authority, its key, and Dask's configuration.

    It is on the curve P-256: made in a millisecond, where RSA takes 100. To be called in a thread:
    cryptography is imported here, so that no host waits for it. That includes the backend, which
    `sign` would import outside the lock (cryptography 48).
    """
    with IMPORTING:
        importlib.import_module("cryptography.hazmat.backends.openssl.backend")
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    usage = x509.KeyUsage(  # OpenSSL's strict mode (Python 3.13) requires it
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=True,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(COMMON_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Credentials(
        dask_config_json=dask_config_json,
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    )
