"""The cluster's certificate authority, its server certificate, and the tokens that it signs.

Everything is created at start and kept in memory; keys are P-256, which take a millisecond where RSA takes a second.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .schema.requests import ISSUER
from .schema.values import new_uid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIFETIME = timedelta(days=365)
SKEW = timedelta(minutes=5)


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(slots=True)
class Authority:
    """The cluster's keys; `ca_pem` is the CA certificate for kubeconfigs and kube-root-ca.crt."""

    clock: Callable[[], float]
    ca_key: ec.EllipticCurvePrivateKey
    ca: x509.Certificate
    signing_key: ec.EllipticCurvePrivateKey
    static: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # token -> user, groups

    @classmethod
    def create(cls, clock: Callable[[], float]) -> Authority:
        """Create a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        builder = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        builder = builder.add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                key_encipherment=True,
                crl_sign=False,
                content_commitment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(clock, key, builder.sign(key, hashes.SHA256()), ec.generate_private_key(ec.SECP256R1()))

    @property
    def ca_pem(self) -> str:
        """The CA certificate in PEM."""
        return self.ca.public_bytes(serialization.Encoding.PEM).decode()

    def certificate(
        self, common_name: str, organizations: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> tuple[str, str]:
        """Return (certificate, key) in PEM: for a server if hosts are given, else for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(subject, self.ca.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca_key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False
            )
        certificate = builder.sign(self.ca_key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode(), _private_pem(key)

    def server_context(self, hosts: Sequence[str]) -> ssl.SSLContext:
        """Return a server's TLS context: its certificate, and client certificates of this authority accepted."""
        certificate, key = self.certificate("kube-apiserver", (), hosts)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.ca_pem)
        handle, path = tempfile.mkstemp(prefix="sim-api-")  # the ssl module reads keys from files only
        try:
            with os.fdopen(handle, "w") as file:
                file.write(certificate + key)
            context.load_cert_chain(path)
        finally:
            os.unlink(path)  # noqa: PTH108 - the handle came from os-level mkstemp
        return context

    # -- tokens

    def static_token(self, user: str, groups: Sequence[str] = ()) -> str:
        """Return a new bearer token for a user without an object (an administrator)."""
        token = secrets.token_urlsafe(32)
        self.static[token] = (user, tuple(groups))
        return token

    def token(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        seconds: int = 3600,
        audiences: Sequence[str] = (),
        pod: tuple[str, str] | None = None,
        secret: tuple[str, str] | None = None,
    ) -> str:
        """Sign a service account token, as TokenRequest and the kubelet's projected volumes do.

        `pod` is (name, uid) of the pod to which the token is bound.
        """
        now = int(self.clock())
        bound: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        for kind, reference in (("pod", pod), ("secret", secret)):
            if reference is not None:
                bound[kind] = {"name": reference[0], "uid": reference[1]}
        claims = {
            "aud": list(audiences) or [ISSUER],
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": new_uid(),
            "kubernetes.io": bound,
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        return self._sign(claims)

    def claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that this authority signed and that is still valid, else None."""
        try:
            head, body, signature = token.split(".")
            raw = _unb64(signature)
            der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            self.signing_key.public_key().verify(der, f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
            claims: dict[str, Any] = json.loads(_unb64(body))
        except (ValueError, InvalidSignature):
            return None
        now = self.clock()
        return claims if claims.get("nbf", 0) <= now + SKEW.total_seconds() and now < claims.get("exp", 0) else None

    def jwks(self) -> dict[str, Any]:
        """Return the public signing key as served under /openid/v1/jwks."""
        numbers = self.signing_key.public_key().public_numbers()
        x, y = (_b64(part.to_bytes(32, "big")) for part in (numbers.x, numbers.y))
        return {
            "keys": [{"use": "sig", "kty": "EC", "kid": self._kid(), "crv": "P-256", "alg": "ES256", "x": x, "y": y}]
        }

    def _kid(self) -> str:
        raw = self.signing_key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return _b64(hashlib.sha256(raw).digest())

    def _sign(self, claims: dict[str, Any]) -> str:
        head = _b64(json.dumps({"alg": "ES256", "kid": self._kid()}, separators=(",", ":")).encode())
        body = _b64(json.dumps(claims, separators=(",", ":")).encode())
        r, s = decode_dss_signature(self.signing_key.sign(f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256())))
        return f"{head}.{body}.{_b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
