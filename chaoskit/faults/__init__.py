"""Faults: one module per kind, each with the plain data of a fault and one declaration of what it is.

A kind is found through the entry-point group `chaoskit.faults`: another package may declare one. From the
declaration follow the option `--fault`, the plan, how the fault is carried out, tokens, tables and docs.
"""
