"""World: what the target acts upon. It lives in the supervisor, so no crash of the target touches it.

Each service keeps what was done in one Ledger, in the order in which it was done. A service may
honour idempotency keys (a second act with the same key is answered as the first was, and not done
again) and may answer "did this happen?"; most real ones do neither, which is why a target has to
care. Everything a caller can see is derived from what it asked: two runs of one seed get the same
receipts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from chaoskit.model import Effect, Json, Service

HAPPENED = "happened"  # the action by which a verifiable service is asked about a key
ASK = "ask"  # the action that changes nothing, and is counted
REMEMBER = (
    "remember"  # what somebody outside keeps in mind: a client, which no crash of ours touches
)
RECALL = "recall"


class Refused(Exception):
    """The request makes no sense to the service; the caller gets the reason."""


class World:
    def __init__(self, services: Iterable[Service]) -> None:
        self._services = {service.name: service for service in services}
        self.ledger: list[Effect] = []

    def act(self, life: int, call: dict[str, Any]) -> Json:
        """Do what was asked, write it down, and return the answer for the caller."""
        service = self._service(call["service"])
        key: str | None = call["key"]
        if call["action"] == HAPPENED:
            return self._happened(service, key)
        if call["action"] == ASK:
            return self._ask(life, call)
        if call["action"] == REMEMBER:
            return self._remember(life, call)
        if call["action"] == RECALL:
            return self._recall(service, key)
        known = service.honours_keys and key is not None and self._done(service, key)
        effect = Effect(
            life, call["at"], service.name, call["action"], call["args"], key, applied=not known
        )
        self.ledger.append(effect)
        return {"receipt": receipt(effect)}

    def _ask(self, life: int, call: dict[str, Any]) -> Json:
        """How often this was asked, this time included: an answer may depend on it. No effect."""
        asked = Effect(life, call["at"], call["service"], ASK, call["args"], None, applied=False)
        self.ledger.append(asked)
        same = (
            e
            for e in self.ledger
            if (e.service, e.action, e.args) == (asked.service, ASK, asked.args)
        )
        return {"times": sum(1 for _ in same)}

    def _remember(self, life: int, call: dict[str, Any]) -> Json:
        """Under a key, in the place of what was there. In the ledger, and yet no effect."""
        self.ledger.append(
            Effect(
                life,
                call["at"],
                call["service"],
                REMEMBER,
                call["args"],
                call["key"],
                applied=False,
            )
        )
        return None

    def _recall(self, service: Service, key: str | None) -> Json:
        kept = [e.args for e in self._of(service, key) if e.action == REMEMBER]
        return kept[-1] if kept else None

    def _service(self, name: str) -> Service:
        if name not in self._services:
            known = ", ".join(sorted(self._services)) or "none"
            raise Refused(f"no service {name!r} in this world (there are: {known})")
        return self._services[name]

    def _happened(self, service: Service, key: str | None) -> Json:
        if not service.verifiable:
            raise Refused(f"{service.name} does not say what it has done")
        found = next((effect for effect in self._of(service, key) if effect.applied), None)
        return {"receipt": receipt(found)} if found else None

    def _done(self, service: Service, key: str) -> bool:
        return any(effect.applied for effect in self._of(service, key))

    def _of(self, service: Service, key: str | None) -> Iterable[Effect]:
        return (e for e in self.ledger if e.service == service.name and e.key == key)


def receipt(effect: Effect) -> str:
    """The same for the same act, whenever it is asked for."""
    content = msgspec.json.encode([effect.service, effect.action, effect.args], order="sorted")
    return "r-" + hashlib.blake2b(content, digest_size=6).hexdigest()
