"""Workloads: what the targets do while they are being crashed."""
