"""The disk model: traces what a program writes, and rebuilds the states that a crash could have left.

Data flows one way: the interposer (C, inside the target) fills a trace; `trace` decodes it into
`Op`s; `kill_states` rebuilds the directory at any position; `power` enumerates the states that a power
loss at that position could have left; `hint` finds the missing sync that would have prevented a bad state.
"""
