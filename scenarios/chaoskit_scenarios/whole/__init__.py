"""The whole agent under generated workloads: what no hand-written scenario thinks of."""
