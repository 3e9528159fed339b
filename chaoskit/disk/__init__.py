"""The harness' eyes on the disk: what a program wrote, and what a crash would have left of it.

Data flows one way: the interposer (C, inside the target) fills a trace; `trace` decodes it into
`Op`s; `kill_states` rebuilds the directory at any point of it; `power` enumerates what a power loss at
that point could have left; `hint` says which missing sync would have made a bad state impossible.
"""
