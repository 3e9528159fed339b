"""World: the services that the target calls. It lives in the supervisor, so it survives every crash.

All effects are recorded in one ledger, in order. A service may honour idempotency keys (a repeated
request with the same key gets the first receipt and has no effect) and may answer "did this happen?".
Most real services do neither, so a target cannot rely on them. Answers depend only on the requests:
two runs with the same seed get the same receipts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from chaoskit.model import Effect, Json, Service

HAPPENED = "happened"  # asks a verifiable service whether a key was applied
ASK = "ask"  # has no effect; the World counts how often it was asked
REMEMBER = "remember"  # stores a value outside the target, as a client would that survives the crash
RECALL = "recall"


class Refused(Exception):
    """The service rejects the request; the caller gets the reason."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A request to the World."""

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
        """Performs the request, records it, and returns the answer."""
        service = self._service(call.service)
        if call.action == HAPPENED:
            return self._happened(service, call.key)
        if call.action == ASK:
            return self._ask(call)
        if call.action == REMEMBER:
            self._note(call, applied=False)  # recorded, but without effect
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
        """How often this was asked, including now: a scripted answer may depend on it. No effect."""
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
            raise Refused(f"{service.name} cannot report what it has done")
        found = next((effect for effect in self._of(service, key) if effect.applied), None)
        return {"receipt": receipt(found)} if found else None

    def _done(self, service: Service, key: str) -> bool:
        return any(effect.applied for effect in self._of(service, key))

    def _of(self, service: Service, key: str | None) -> Iterable[Effect]:
        return (e for e in self.ledger if e.service == service.name and e.key == key)


def receipt(effect: Effect) -> str:
    """The same effect always has the same receipt."""
    content = msgspec.json.encode([effect.service, effect.action, effect.args], order="sorted")
    return "r-" + hashlib.blake2b(content, digest_size=6).hexdigest()
