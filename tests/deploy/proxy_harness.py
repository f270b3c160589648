"""Debian's nginx with the shipped deploy/nginx.conf on loopback, and clients that speak TLS to it."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

from collector_harness import free_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.programs import require

SHIPPED = Path(__file__).parents[2] / "deploy" / "nginx.conf"
REPORTS_TYPE = "application/vnd.dither.reports"
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def write_certificate(folder: Path) -> int:
    """Write a new key and a certificate for 127.0.0.1; return its serial number."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    today = datetime.datetime.now(datetime.UTC)
    serial = x509.random_serial_number()
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), serial)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return serial


class Proxy:
    """nginx with the shipped file; only addresses and places of files differ.

    Args:
        folder: Where configuration, certificate and messages go.
        ports: The ports of the two collectors.
    """

    def __init__(self, folder: Path, ports: tuple[int, int]) -> None:
        beside = Path("/usr/sbin/nginx")  # not in every user's PATH
        program = require(shutil.which("nginx") or beside, "nginx")
        self.folder, self.port = folder, free_port()
        self.serial = write_certificate(folder)
        text = SHIPPED.read_text(encoding="utf-8")
        for shipped, here in (
            ("server collector-1:8700 ", f"server 127.0.0.1:{ports[0]} "),
            ("server collector-2:8700 ", f"server 127.0.0.1:{ports[1]} "),
            ("listen 8443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            ("/run/secrets/certificate.pem", str(folder / "certificate.pem")),
            ("/run/secrets/key.pem", str(folder / "key.pem")),
            (
                "access_log off;",
                "access_log off;"
                + "".join(f" {part}_temp_path {folder / part};" for part in _TEMPORARY),
            ),
        ):
            assert text.count(shipped) == 1, shipped
            text = text.replace(shipped, here)
        configuration = folder / "nginx.conf"
        configuration.write_text(text, encoding="utf-8")
        directives = f"daemon off; pid {folder / 'nginx.pid'};"
        if os.geteuid() == 0:  # pytest's folders are open to their owner only
            directives += " user root;"
        # A log that is opened before the configuration is read, and used for nothing after it.
        command = [program, "-e", str(folder / "start"), "-c", str(configuration), "-g", directives]
        self._messages = (folder / "messages").open("w")
        self.process = subprocess.Popen(command, stderr=self._messages)
        self.context = self.trusting()
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, self.messages()
                assert time.monotonic() < deadline, "nginx does not listen"
                time.sleep(0.01)

    def trusting(self) -> ssl.SSLContext:
        """A context that trusts the certificate of this moment."""
        return ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))

    def connect(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """A connection from an address of loopback."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=70, context=self.context, source_address=(source, 0)
        )

    def reload(self) -> None:
        """Have the configuration and the certificate read again."""
        self.process.send_signal(signal.SIGHUP)

    def messages(self) -> str:
        """Everything that nginx has written."""
        return (self.folder / "messages").read_text() + (self.folder / "start").read_text()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        self._messages.close()


def upload(
    connection: http.client.HTTPConnection, campaign: str, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Send an envelope; status, headers and body of the answer."""
    path = f"/v1/campaigns/{campaign}/reports"
    connection.request("POST", path, body, {"content-type": REPORTS_TYPE})
    answer = connection.getresponse()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, headers, answer.read()
