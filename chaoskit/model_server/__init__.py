"""A model service that misbehaves on demand, over real sockets.

    with ModelServer([Misbehaviour("rate_limit", retry_after="2"), None]) as server:
        ...  # any OpenAI-compatible client, at server.url
    assert server.answered == 1

Method. The server uses asyncio and h11 directly, because a web framework cannot produce the failures that
a client must face: no answer at all, a reset, a body that stops. A `Misbehaviour` is plain data; the nth
request gets the nth of the list. None in the list, and every request after its end, gets a correct answer.
What the client sees:

    rate_limit    429, with `retry_after` as its Retry-After header if given
    unavailable   503, the same
    server_error  500, the same
    bad_request   400, and
    unauthorized  401: a retry cannot help
    timeout       the request is read, but never answered
    reset         after `after` events of the answer, RST instead of the rest (SO_LINGER 0)
    cut           after `after` events the connection is closed with FIN, although the chunked body,
                  or the announced length, is not complete
    unfinished    what a proxy makes of a cut: the HTTP body is complete, but the stream in it has no end
    malformed     after `after` events, broken JSON; then the answer continues normally
    slow          the first token takes `seconds`, the rest is normal

An answer that is not streamed counts as two events: its first half and its second.

Guarantees:
W1  A request is recorded before the first byte of its answer is sent, so a test can count everything
    that a client has seen. Only the presence of the Authorization header is recorded, never the key.
W2  Faults are assigned in the order in which requests arrive, one each. A request that a real service
    would reject is rejected (400) and uses up no fault.
W3  Closing the server closes every connection and ends all its tasks.

    faults       Misbehaviour, and lists of them from a seed
    replies      the answers of a correct service, as plain JSON
    connection   one client's socket: requests in; answers, parts of answers and resets out
    server       assigns faults to requests, and keeps the record
"""

from chaoskit.model_server.faults import Kind, Misbehaviour, misbehaviours_from
from chaoskit.model_server.server import ModelServer, Seen

__all__ = ["Kind", "Misbehaviour", "ModelServer", "Seen", "misbehaviours_from"]
