"""Small stores, sound ones and broken ones: the harness' own controls.

Each saves numbered texts, one acknowledgement per save. What must be said of each is in `controls`,
and the test suite checks every cell: a sound store that is accused, and a broken one that passes, are
both bugs of chaoskit.
"""
