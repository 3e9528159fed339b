"""Every combination of inputs to the status, against an independent formulation of the rules."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from reference_agent.sessions.projector import derive
from reference_agent.sessions.refusals import TokenRefused, check_usable
from reference_agent.sessions.snapshot import (
    Interruption,
    RecoveryBlock,
    RunBlock,
    SessionSnapshot,
    WaitBlock,
    fold,
)
from reference_agent.sessions.times import stamp
from reference_agent.sessions.token_index import Token

NOW = 5000.0
BOOTS = ["this", "older", None]
ENDS = ["none", "completed", "failed", "cancelled", "restart", "wait_timeout", "token_invalid", "unexplained"]
WAITS = ["no wait", "wait"]
TOKENS = ["active", "consumed", "revoked", "expired", "missing", "unnamed", "other run", "other wait"]
TIMES = [None, NOW - 1, NOW, NOW + 1]
OWN_ENDS = {"completed", "failed", "cancelled"}

CASES = list(product(BOOTS, ENDS, WAITS, TOKENS, TIMES, TIMES))


def built(boot, end, wait, which, expires, deadline):
    """The snapshot and the tokens of a case."""
    own = end in OWN_ENDS
    interrupted = end != "none" and not own
    name = None if which == "unnamed" else "t"
    block = WaitBlock("k", 1, name, deadline and stamp(deadline), "c") if wait == "wait" else None
    state = end if own else "interrupted" if interrupted else None
    run = RunBlock("r", boot, "then", None, block, state, "q")
    recovery = None
    if interrupted and end != "unexplained":
        reason = "process_restart" if end == "restart" else end
        recovery = RecoveryBlock(boot, Interruption("r", reason, 3, "then"))
    tokens = {}
    if which not in ("missing", "unnamed"):
        tokens["t"] = Token(
            "t",
            "h",
            "s",
            run_id="other" if which == "other run" else "r",
            wait_kind="other" if which == "other wait" else "k",
            expires_at=expires and stamp(expires),
            state=which if which in ("consumed", "revoked", "expired") else "active",
        )
    return SessionSnapshot("s", run=run, recovery=recovery), tokens


def model(boot, end, wait, which, expires, deadline):
    """The rules of the specification one by one, then its precedence."""
    nobody_ended_it = end == "none"
    ended_itself = end in OWN_ENDS
    waits = wait == "wait"
    late = [moment is not None and moment <= NOW for moment in (expires, deadline)]
    good = which == "active" and not any(late) and nobody_ended_it
    applies = {
        "interrupted_startup": boot != "this" and (nobody_ended_it or end == "restart"),
        "interrupted_waiting": waits and not ended_itself and not good,
        "waiting": waits and good,
        "running": nobody_ended_it,
        "idle": True,
    }
    return next(status for status, it_does in applies.items() if it_does)


@pytest.mark.requirement("O2")
def test_every_combination_has_the_status_that_the_rules_specify():
    seen = set()
    for case in CASES:
        snapshot, tokens = built(*case)
        status = derive(snapshot, tokens, "this", NOW)
        assert status == model(*case), case
        seen.add(status)
    assert len(CASES) == 3 * 8 * 2 * 8 * 4 * 4
    assert seen == {"running", "waiting", "idle", "interrupted_startup", "interrupted_waiting"}


@pytest.mark.requirement("O2")
def test_a_session_without_a_run_is_idle():
    assert derive(SessionSnapshot("s"), {}, "this", NOW) == "idle"


# The smallest changes that lead from each status to the next in the order of precedence.
LADDER = [
    (("this", "completed", "no wait", "missing", None, None), "idle"),
    (("this", "none", "no wait", "missing", None, None), "running"),
    (("this", "none", "wait", "active", NOW + 1, NOW + 1), "waiting"),
    (("this", "none", "wait", "active", NOW + 1, NOW), "interrupted_waiting"),
    (("this", "none", "wait", "active", NOW, NOW + 1), "interrupted_waiting"),
    (("this", "none", "wait", "missing", None, None), "interrupted_waiting"),
    (("this", "none", "wait", "consumed", None, None), "interrupted_waiting"),
    (("this", "none", "wait", "revoked", None, None), "interrupted_waiting"),
    (("this", "wait_timeout", "wait", "revoked", None, NOW), "interrupted_waiting"),
    (("older", "wait_timeout", "wait", "revoked", None, NOW), "interrupted_waiting"),
    (("older", "none", "wait", "missing", None, None), "interrupted_startup"),
    (("older", "none", "wait", "active", None, None), "interrupted_startup"),
    (("older", "restart", "wait", "revoked", None, None), "interrupted_startup"),
    ((None, "none", "no wait", "missing", None, None), "interrupted_startup"),
    (("older", "completed", "no wait", "missing", None, None), "idle"),
]


@pytest.mark.requirement("O2")
@pytest.mark.parametrize(("case", "status"), LADDER)
def test_the_precedence_by_example(case, status):
    assert derive(*built(*case), "this", NOW) == status


@pytest.mark.requirement("O2", "O5")
@given(st.sampled_from(CASES), st.floats(NOW - 2, NOW + 2))
def test_a_run_waits_exactly_as_long_as_its_token_would_be_accepted(case, now):
    snapshot, tokens = built(*case)
    try:
        check_usable(tokens["t"], snapshot, now)
        accepted = True
    except (KeyError, TokenRefused):
        accepted = False
    boot = snapshot.run.boot_id or "this"
    waiting = derive(snapshot, tokens, boot, now) == "waiting"
    # A wait that names no token waits for none, even if there is one.
    assert waiting == (accepted and snapshot.run.boot_id is not None)


@pytest.mark.requirement("O2")
@given(
    st.sampled_from(CASES), st.sampled_from(["message.user", "status.derived", "boot.seen", "turn.completed"])
)
def test_messages_change_no_status(case, kind):
    snapshot, tokens = built(*case)
    event = {"seq": 9, "ts": "later", "kind": kind, "status": "running", "boot_id": "this"}
    assert derive(fold(snapshot, event), tokens, "this", NOW) == derive(snapshot, tokens, "this", NOW)
