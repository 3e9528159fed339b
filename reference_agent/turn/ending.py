"""How a request can end without an answer."""


class GaveUp(Exception):
    """The request cannot be fulfilled: budget spent, too many turns, or no answer from the model."""


class Cancelled(GaveUp):
    """The request was cancelled."""
