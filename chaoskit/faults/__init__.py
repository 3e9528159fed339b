"""Faults: one module per kind, each with the fault as plain data and one declaration (`FaultKind`).

Kinds are found through the entry-point group `chaoskit.faults`; other packages may declare their own. The
option `--fault`, plans, execution, tokens, tables and docs all derive from the declaration.
"""
