"""The daemon of many agents under crashes."""
