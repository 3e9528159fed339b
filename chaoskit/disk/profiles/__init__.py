"""What a power loss may leave, one model per file system: `posix`; `journaled` for ext4 and xfs; `btrfs`.

`chaoskit.disk.power` has the rules that they implement and chooses among their states. `pending` and
`inplace` hold what was written to a file and is not durable yet.
"""
