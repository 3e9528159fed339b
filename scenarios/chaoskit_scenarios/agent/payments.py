"""`payments`: an agent pays invoices and writes mails, in several requests of several turns each.

Looking up a customer only reads. Paying acts on a service that honours idempotency keys. Mailing acts on
one that does not, but can report whether a mail was sent. Posting acts on one that supports neither:
exactly once is impossible there, so it must be at most once, and the open question goes to the user. A
crash at any point must leave every invoice paid once, every mail sent once, and the same conversation as
without a crash, except for such a question.
"""

from __future__ import annotations

from typing import Any

from chaoskit.model import Scenario, Service, Target
from chaoskit_scenarios import readers
from chaoskit_scenarios.mutants import AGENT_MUTANTS

REQUESTS = 2


def workload(seed: int) -> dict[str, Any]:
    """The requests, and the script of the model that answers; names and amounts come from the seed."""
    from faker import Faker  # noqa: PLC0415 - only the supervisor needs it, once per campaign

    fake = Faker("en_US")
    fake.seed_instance(seed)
    return {"requests": [_request(fake) for _ in range(REQUESTS)]}


def _request(fake: Any) -> dict[str, Any]:
    name, mail = fake.unique.name(), fake.unique.email()
    cents = fake.unique.random_int(100, 99_999)
    return {
        "content": f"Pay {name} {cents / 100:.2f} and tell {mail}: {fake.sentence()}",
        "steps": [
            [
                {"tool": "lookup", "args": {"customer": name}},
                {"tool": "pay", "args": {"to": name, "cents": cents}},
            ],
            [{"tool": "mail", "args": {"to": mail, "text": fake.sentence()}}],
            [{"tool": "post", "args": {"note": f"{name} was paid"}}],
        ],
        "answer": f"{name} has been paid.",
    }


SERVICES = (
    Service(name="model"),
    Service(name="board"),
    Service(name="payments", honours_keys=True),
    Service(name="mail", verifiable=True),
)
TARGET = Target(
    entry="chaoskit_scenarios.agent.target:main",
    # Modules the entry imports anyway, imported once instead.
    preload=("aiosqlite", "encodings.idna", "tenacity", *readers.modules()),
)
STORES = readers.readable_stores()
ALWAYS = (
    "recovers",
    "exactly-once",
    "single-interruption",
    "prefix-log",
    "model-calls",
    "bookkeeping",
    "client-consistency",
)
LIKE_THE_UNDISTURBED = (*ALWAYS, "rollback", "crash-equivalence")

SCENARIO = Scenario(
    name="payments",
    summary="pays invoices, sends mail and posts notes over several turns, each exactly once",
    target=TARGET,
    workload=workload,
    services=SERVICES,
    invariants=LIKE_THE_UNDISTURBED,
    mutants=AGENT_MUTANTS,
    stores=STORES,
)
