"""Daemon: many agents in one process, in a tree, each with a mailbox. All of it survives a crash.

Terms: an *agent* has a session with a provider, whose state is an opaque *blob*; a *link* makes it the
child of another agent, or a root; a *message* goes from an agent (or `user`) to an agent; a message that
*wants a reply* is a synchronous one. The daemon *handles* a message by passing it to the receiver's
provider: one turn.

Guarantees, cited as D1... by the code and its tests:

D1  A session record is durable before the agent's first turn, a link before the spawn is acknowledged, a
    message before the send is acknowledged. An operation that was not acknowledged may or may not have
    happened, but never partially: a record without a link was never acknowledged, and recovery removes it.
    An operation whose caller is cancelled is carried out all the same.
D2  All state is a fold of changes (`state`), one write each; a change is on disk before it counts.
D3  The tree is a forest at all times: no orphan, no dangling parent, no cycle. An agent is ACTIVE only
    while its parent is: waking proceeds from the root down, suspending from the leaves up. Stopping an
    agent stops its descendants in the same write; a concurrent spawn below it is refused.
D4  An acknowledged message is handled, or it is set aside with a reason that is reported to its sender. It
    is never lost. It appears once in the receiver's history: the blob after the turn is saved together with
    the message's id, so a redelivered message is recognised with any provider.
D5  A reply is a message like any other, with an id derived from that of its question: it is written once,
    and handled once by the agent that asked (below). Its id ends with `.reply`, and no other may. A send with
    a known id is a repetition and is answered as one if the message is the same; another message is refused.
    The ids of the last 1,000 settled messages are known.
D6  A mailbox is bounded, and a question reserves a place for its reply. When the mailbox is full, the send
    is refused (`MailboxFull`). The sender is not blocked: two agents that wait for each other would
    deadlock, whereas an agent that gets an error can decide. Memory holds the undelivered messages, the
    last 1,000 settled ones and the agents.
D7  A message whose turn fails five times is set aside and reported; other agents, and the messages behind
    it, continue. A turn fails with any error of the provider, and also if it returns no text that can be
    stored, cancels itself, or does not end in time (`Limits.patience`). An attempt is counted durably before
    it begins, so this also holds for a message that crashes the whole daemon each time. Messages in progress
    at the same time are not at fault: from the third attempt on, such suspects take their turns one at a
    time, so that only the message that crashes the daemon is counted again.
D8  Recovery is linear in the number of agents and undelivered messages, not in the number of messages ever
    sent: SQLite keeps the undelivered messages and the last 1,000 settled ones; on files the log continues
    in a new segment that begins with these.

A question from A to B, and what remains to be done after a crash at each point:

    A            daemon                          B's provider           after a crash here
    |--send----->| message.enqueued                                     never acknowledged, or (below)
    |<--id-------|                                                      B is woken, handles it
    |            | message.tried                                        the same, one attempt fewer
    |            |--- inference ----------------------->|               the same: the turn is lost
    |            |<-- B's answer -----------------------|               the same
    |            | send.completed (blob, id, reply)                     recovery writes the reply, without B
    |            | message.enqueued (the reply)                         recovery marks the question
    |            | message.delivered (the question)                     A is woken, handles the reply
    |<--reply----| inference, send.completed, message.delivered         A asks again by id, is answered

The six places where the seed of this design wants the daemon killed, and the corresponding persist points:

    after create() but before writing the session record          session.created, after
    after writing the session record but before the first send()  session.recorded, after
    after send() completes but before delivering the reply         send.completed, after
    after enqueueing a message but before marking it delivered      message.enqueued, after
    after writing the tree link but before returning success        tree.linked, after
    mid-inference                      inference, before; every point that another agent passes meanwhile

Design decisions on questions that were open:

- *Which agents resume after a crash?* Roots that were ACTIVE. They get a message, the recovery prompt
  (`recovery.PROMPT`), ahead of other messages: the last turn may be lost, undelivered messages are
  redelivered, these are your sub-agents. A clean shutdown leaves no agent ACTIVE, so no agent hears of a
  crash that did not happen. Sub-agents resume on demand: by a message, including one that was undelivered
  at the crash, or by `resume`.
- *What if B replied but A never received the reply?* B's reply is durable together with B's turn, so no
  turn is repeated: recovery delivers the reply, once.
- *What is lost?* A turn that was in progress: another turn handles its message. An agent that is killed
  five times in the middle of the same turn, for whatever reason, has its message set aside: this case
  cannot be distinguished from a message that kills the daemon.

Components:

    Daemon (daemon) --> Delivery (delivery): one worker per mailbox that is not empty
        |                   |
        +------> Lives (lives): which provider sessions are alive (provider)
        |                   |
        +------> Journal (journal): check, write, one at a time --> DaemonStore (sqlite, files) --> State
        |
    recovery: what is due after a crash, as a pure function of State; tree, mailbox: queries on it
"""
