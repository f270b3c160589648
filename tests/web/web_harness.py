"""What the tests of the pages share: somebody who looks at them as a browser does, without being one."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


@dataclass(frozen=True)
class Seen:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")


class Visitor:
    """Requests of a browser that keeps cookies and follows nothing by itself."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self.cookies: dict[str, str] = {}

    def get(self, path: str, accept: str = BROWSER) -> Seen:
        return self._ask("GET", path, None, {"accept": accept})

    def post(
        self, path: str, fields: dict[str, object], headers: dict[str, str] | None = None
    ) -> Seen:
        """A form, as a browser sends it from a page of the same origin."""
        sent = {
            "accept": BROWSER,
            "content-type": "application/x-www-form-urlencoded",
            **(headers or {}),
        }
        return self._ask("POST", path, urlencode(fields).encode(), sent)

    def upload(self, path: str, fields: dict[str, str], name: str, data: bytes) -> Seen:
        """A form with a file."""
        line = "a-line-between-parts"
        parts = [
            f'--{line}\r\ncontent-disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
            for k, v in fields.items()
        ]
        head = f'--{line}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = b"".join([*parts, head.encode(), data, f"\r\n--{line}--\r\n".encode()])
        return self._ask(
            "POST",
            path,
            body,
            {"accept": BROWSER, "content-type": f"multipart/form-data; boundary={line}"},
        )

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Seen:
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = http.client.HTTPConnection(self._host, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                kept = rest.partition(";")[0].strip('"')
                if kept:
                    self.cookies[key] = kept
                else:
                    self.cookies.pop(key, None)
        return Seen(answer.status, {k.lower(): v for k, v in answer.getheaders()}, data)
