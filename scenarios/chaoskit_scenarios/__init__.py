"""Workloads: what the targets are made to do while they are being crashed."""
