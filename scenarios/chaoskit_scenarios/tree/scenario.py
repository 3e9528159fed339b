"""The scenario of the daemon.

- `tree`: a random tree of six agents (or `--agents N`), and random operations among them at random
  (virtual) times: spawn, send, ask, ask and fetch the reply later, suspend, resume, stop. A parent is
  stopped while a child is spawned below it; some messages are poison. Operations are cancelled and repeated,
  ids collide, messages kill the process, providers misbehave (`workload`). At the end every agent is asked
  whether it is there, and mailboxes are filled. Nothing that was acknowledged is lost, repeated or
  orphaned.
"""

from __future__ import annotations

from chaoskit.model import Scenario, Target
from chaoskit_scenarios.agent.payments import STORES
from chaoskit_scenarios.mutants import TREE_MUTANTS
from chaoskit_scenarios.readers import modules
from chaoskit_scenarios.tree.workload import workload, workload_for

DAEMON_STORES = ("reference_agent.daemon.sqlite", "reference_agent.daemon.files")

SCENARIOS = {
    "tree": Scenario(
        name="tree",
        summary="a daemon with a tree of agents that spawn, ask, suspend and stop each other",
        target=Target(entry="chaoskit_scenarios.tree.target:main", preload=(*DAEMON_STORES, *modules())),
        workload=workload,
        workload_for=workload_for,
        invariants=("recovers", "tree", "delivery", "daemon-model", "no-active", "prefix-log"),
        mutants=TREE_MUTANTS,
        stores=STORES,
    )
}
