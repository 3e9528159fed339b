"""Imported before the fork if other packages add stores: reads their metadata once, for all lives."""

from chaoskit_scenarios.readers import readable_stores

NAMES = readable_stores()
