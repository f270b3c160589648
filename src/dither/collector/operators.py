"""The operators' addresses about themselves: keys, and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic.dataclasses import dataclass

from dither.collector.access import Access, Who
from dither.collector.admin import Body, takes
from dither.collector.audit import MAX_ENTRIES, AuditEntry, acting
from dither.collector.collector import Collector
from dither.collector.keys import KeyRecord
from dither.collector.problems import DOCUMENTED
from dither.collector.spec import STRICT, PlainText, read


@dataclass(frozen=True, config=STRICT)
class NewKey:
    """What a key is called, and whether it may change anything (`curator`) or only look (`reader`)."""

    name: PlainText
    role: PlainText = "reader"


@dataclass(frozen=True)
class CreatedKey:
    """A key, shown this once."""

    name: str
    role: str
    key: str


Number = Annotated[int | None, Query(ge=1, lt=2**31)]
CampaignId = Annotated[str | None, Query(pattern="^[0-9a-f]{2,64}$")]
PageSize = Annotated[int, Query(ge=1, le=MAX_ENTRIES)]


def operator_routes(collector: Collector, access: Access) -> APIRouter:
    """Keys by name, and what was done with them. What asks the store runs in the framework's threads."""
    routes = APIRouter(
        tags=["operator"], dependencies=[Depends(access.authorise)], responses=DOCUMENTED
    )
    keys = collector.keys

    @routes.get("/v1/admin/keys")
    def listed() -> dict[str, list[KeyRecord]]:
        """All keys that ever were: name, role, and the days they were made and revoked."""
        return {"keys": keys.listed()}

    @routes.post("/v1/admin/keys", status_code=201, openapi_extra=takes(NewKey))
    def create(body: Body, who: Who) -> CreatedKey:
        """Make a key; the answer alone shows it."""
        asked = read(NewKey, body)
        with acting(who.name, "create-key"):
            return CreatedKey(asked.name, asked.role, keys.create(asked.name, asked.role))

    @routes.post("/v1/admin/keys/{name}/revoke")
    def revoke(name: str, who: Who) -> dict[str, list[KeyRecord]]:
        """End a key and its sessions; the last curator's is refused."""
        with acting(who.name, "revoke-key"):
            keys.revoke(name)
        return {"keys": keys.listed()}

    @routes.get("/v1/audit")
    def audit(
        campaign: CampaignId = None, before: Number = None, most: PageSize = 100
    ) -> dict[str, list[AuditEntry]]:
        """What operators did, the latest first; `before` goes on from the last number of a page."""
        return {"entries": collector.store.audit.entries(campaign, before, most)}

    return routes
