"""World: the services that the target calls. It lives in the supervisor, so it survives every crash.

All effects are recorded in one ledger, in order. A service may honour idempotency keys (a repeated
request with the same key gets the first receipt and has no effect) and may answer "did this happen?".
Most real services do neither, so a target cannot rely on them. Answers depend only on the requests:
two runs with the same seed get the same receipts.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable

import msgspec

from chaoskit.faults.kind import CallFault
from chaoskit.model import Effect, Firing, Json, PersistPoint, Service

HAPPENED = "happened"  # asks a verifiable service whether a key was applied
ASK = "ask"  # has no effect; the World counts how often it was asked
REMEMBER = "remember"  # stores a value outside the target, as a client would that survives the crash
RECALL = "recall"
BOOKKEEPING = frozenset({ASK, REMEMBER, RECALL})  # of the harness: no fault strikes these


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


class Lost(Exception):
    """The request was carried out, and its reply is lost."""


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


class Calls:
    """The calls of one life that a fault can strike, in order, and the one that it strikes."""

    def __init__(self, fault: CallFault | None = None) -> None:
        self.passed: list[tuple[int, Firing]] = []  # with their positions
        self.fired = False
        self._fault = fault
        self._times: Counter[str] = Counter()

    def carry_out(self, world: World, call: Call) -> Json:
        if call.action in BOOKKEEPING:
            return world.act(call)
        name = f"call {call.service}.{call.action}"
        self._times[name] += 1
        self.passed.append((call.at, Firing(PersistPoint(name, self._times[name]), "call")))
        fault = self._fault
        if fault is None or (fault.name, fault.nth) != (name, self._times[name]):
            return world.act(call)
        self.fired = True
        if not fault.lost:
            raise Refused("the service is unavailable: nothing was done")
        world.act(call)
        raise Lost("no reply: it may have been done")

    def among(self, firings: Iterable[Firing]) -> tuple[Firing, ...]:
        """The calls between the other points that the life passed."""
        left, found = deque(self.passed), []
        for number, firing in enumerate(firings):
            at = number if firing.point.op is None else firing.point.op
            while left and left[0][0] <= at:
                found.append(left.popleft()[1])
            found.append(firing)
        return (*found, *(firing for _, firing in left))
