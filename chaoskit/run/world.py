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

import msgspec

from chaoskit.model import Effect, Json, Service

HAPPENED = "happened"  # the action by which a verifiable service is asked about a key
ASK = "ask"  # the action that changes nothing, and is counted
REMEMBER = "remember"  # what somebody outside keeps in mind: a client, which no crash of ours touches
RECALL = "recall"


class Refused(Exception):
    """The request makes no sense to the service; the caller gets the reason."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Something asked of the World."""

    life: int
    at: int
    service: str
    action: str
    args: dict[str, Json]
    key: str | None


class World:
    def __init__(self, services: Iterable[Service]) -> None:
        self._services = {service.name: service for service in services}
        self.ledger: list[Effect] = []

    def act(self, call: Call) -> Json:
        """Do what was asked, write it down, and return the answer for the caller."""
        service = self._service(call.service)
        if call.action == HAPPENED:
            return self._happened(service, call.key)
        if call.action == ASK:
            return self._ask(call)
        if call.action == REMEMBER:
            self._note(call, applied=False)  # in the ledger, and yet no effect
            return None
        if call.action == RECALL:
            return self._recall(service, call.key)
        known = service.honours_keys and call.key is not None and self._done(service, call.key)
        return {"receipt": receipt(self._note(call, applied=not known))}

    def _note(self, call: Call, *, applied: bool) -> Effect:
        effect = Effect(call.life, call.at, call.service, call.action, call.args, call.key, applied=applied)
        self.ledger.append(effect)
        return effect

    def _ask(self, call: Call) -> Json:
        """How often this was asked, this time included: an answer may depend on it. No effect."""
        self._note(call, applied=False)
        wanted = (call.service, ASK, call.args)
        return {"times": sum((e.service, e.action, e.args) == wanted for e in self.ledger)}

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
