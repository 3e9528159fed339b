"""The specification of the agent: what its clients may observe, whatever happens to its process. Pure.

It knows nothing of files, SQL or recovery. It reads what clients asked and got, what the model was shown and
replied, what the World's ledger has, and what an independent reader finds at the end. A history is allowed if
every rule below holds; `rules` has them under these names.

Requests
  answers     An answer is what the model replied to these words, and never changes.
  justified   A request fails only for a reason that this history contains: a limit of that boot, a hook that
              stopped it, a model that failed for good or as often as it is retried.
  limits      The model is not asked for more turns than a request may take, restarts and waits included.
  cancelled   A request is cancelled only if somebody cancelled or superseded it; from then on the model is
              not asked for it, and it does not wait.
  ends        In a calm boot every request comes to its end, and every session can still be used.
  refusals    A refusal has a reason that the client can see. Nothing else is ever raised.

Effects
  once        An effect happens once for each call, and only for calls that the model decided.
  agrees      What the conversation says happened, happened; what it says was not run, did not.
  explained   A result that is not the tool's own has its reason in this history.

The conversation
  valid       The model is shown every call with one result, and nobody else's words.
  closed      A session in which nothing is to be done has no call without its result.
  stands      A decision that was acknowledged, and what it was based on, is in every later conversation; only
              the turns of requests that failed or were cancelled may disappear.
  complete    Each answered request is in the final conversation once: its words, then its answer.

The rest
  retries     The model is asked again no earlier than it wanted, and not more often than configured.
  budget      No request to the model once the limit is reached; what is spent is what was used.
  tokens      A token that a client was given works, until something the client can see ends it.
  brought     A result from outside that was accepted is the result of its call.
  events      A stream of events has every line once, in order, however often it is cut.
  one story   Rows, log, status and memory tell the same.
"""
