"""A model service that misbehaves on demand, over real sockets.

    with ModelServer([Misbehaviour("rate_limit", retry_after="2"), None]) as server:
        ...  # any OpenAI-compatible client, at server.url
    assert server.answered == 1

Method. It is written on asyncio and h11 by hand, because what must be shown to a client cannot be
made through a web framework: no answer at all, a reset, a body that stops. A `Misbehaviour` is
plain data; the nth request gets the nth of the list, or a sound answer where that is None, and
everything after the end of the list is answered soundly. What each leaves behind at the client:

    rate_limit    429, with `retry_after` as its Retry-After header if given
    unavailable   503, the same
    server_error  500, the same
    bad_request   400, and
    unauthorized  401: asking again is of no use
    timeout       the request is read, and nothing ever comes back
    reset         after `after` events of the answer, RST instead of the rest (SO_LINGER 0)
    cut           after `after` events the connection closes, politely, although the chunked body,
                  or the promised length, is not complete
    unfinished    what a proxy makes of a cut: the body is complete, what it says has no end
    malformed     after `after` events, broken JSON; then all goes on as if nothing was wrong
    slow          the first token takes `seconds`, then all is well

An answer that is not streamed counts as two events: its first half and its second.

Guarantees:
W1  A request is on record before the first byte of its answer leaves: what a client has seen, a
    test can count. Of the Authorization header only its presence is kept, never the key.
W2  Faults are dealt out in the order in which requests arrive, one each, none twice. A request that
    a real service would refuse is refused (400) and uses up no fault.
W3  When the server is closed, every connection is closed, and nothing of it runs any more.

    faults       Misbehaviour, and lists of them from a seed
    replies      what a sound service says, as plain JSON
    connection   one client's socket: requests in; answers, pieces and violence out
    server       who gets which of these, and the record
"""

from chaoskit.model_server.faults import Kind, Misbehaviour, misbehaviours_from
from chaoskit.model_server.server import ModelServer, Seen

__all__ = ["Kind", "Misbehaviour", "ModelServer", "Seen", "misbehaviours_from"]
