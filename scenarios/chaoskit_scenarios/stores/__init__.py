"""Small stores, correct ones and broken ones: the harness' own controls.

Each saves numbered texts, one acknowledgement per save. `controls` lists the expected verdicts, and the
test suite checks every one: a correct store that is accused and a broken store that passes are both bugs of
chaoskit.
"""
