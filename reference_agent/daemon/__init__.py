"""Daemon: many agents in one process, in a tree, each with a mailbox; all of it survives the process.

Words: an *agent* has a session with a provider, whose state is an opaque *blob*; a *link* makes it the
child of another agent, or a root; a *message* goes from an agent (or `user`) to an agent; a message that
*wants a reply* is a synchronous one. The daemon *handles* a message by giving it to the receiver's
provider: one turn.

Guarantees, cited as D1... from the code and its tests:

D1  A session record is durable before the agent's first turn, a link before the spawn is acknowledged, a
    message before the send is. Whatever was not acknowledged may be there or not, but never by half: a
    record without a link was never acknowledged, and recovery removes it.
D2  Everything is a fold of changes (`state`), one write each; a change is on disk before it counts.
D3  The tree is a forest at any moment: no orphan, no dangling parent, no cycle. An agent is ACTIVE only
    while its parent is: waking goes from the root down, suspending from the leaves up. Stopping an agent
    stops its descendants by the same write; who spawns below it meanwhile is refused.
D4  An acknowledged message is handled, or set aside with a reason that its sender is told. It is never
    lost. The receiver's history has it once: the blob after the turn is saved together with the message's
    id, so that a message which comes again is recognised, whatever the provider is.
D5  A reply is a message like any other, with an id made from that of its question: written once, and
    handled once by the one who asked (below). A send with an id that is known is a repetition, and
    answered as such; the ids of the last 1,000 settled messages are known.
D6  A mailbox has a bound, and a question reserves a place for its reply. Beyond it the sender is refused
    (`MailboxFull`). It does not wait: two agents that wait for each other would do so for ever, and an
    agent that is told can decide. Memory holds the undelivered, the last 1,000 and the agents.
D7  A message whose turn fails five times is set aside and reported; other agents, and the messages behind
    it, go on. A try is counted durably before it begins, so that this is also true of a message that ends
    the whole daemon each time. Those that were under way with it are innocent: from the third try on, such
    suspects have their turns one by one, so that only the one that ends the daemon is counted again.
D8  Recovery is linear in the agents and what is undelivered, not in what was ever sent: SQLite keeps the
    undelivered and the last 1,000; on files the log goes on in a new segment that begins with these.

A question from A to B, and what a crash at each place leaves to do:

    A            daemon                          B's provider           after a crash here
    |--send----->| message.enqueued                                     never acknowledged, or (below)
    |<--id-------|                                                      B is woken, handles it
    |            | message.tried                                        the same, once less
    |            |--- inference ----------------------->|               the same: the turn is lost
    |            |<-- what B says ----------------------|               the same
    |            | send.completed (blob, id, reply)                     recovery writes the reply, without B
    |            | message.enqueued (the reply)                         recovery marks the question
    |            | message.delivered (the question)                     A is woken, handles the reply
    |<--reply----| inference, send.completed, message.delivered         A asks again by id, is answered

The six places where the seed of this design wants it killed, and the points that they are:

    after create() but before writing the session record          session.created, after
    after writing the session record but before the first send()  session.recorded, after
    after send() completes but before delivering the reply         send.completed, after
    after enqueueing a message but before marking it delivered      message.enqueued, after
    after writing the tree link but before returning success        tree.linked, after
    mid-inference                      inference, before; every point that another agent passes meanwhile

What was open, and is decided:

- *Who is resumed after a crash?* Roots that were ACTIVE, by a message, the recovery prompt
  (`recovery.PROMPT`), which comes before other messages: the last turn may be lost, what is undelivered
  comes again, these are your sub-agents. A clean shutdown leaves no agent ACTIVE, so nobody is told of a
  crash that was none. Sub-agents are resumed on demand: by a message, also one that was undelivered at
  the crash, or by `resume`.
- *B replied, but A never got it?* B's reply is durable with B's turn, so nobody is asked to repeat
  anything: it is delivered after recovery, once.
- *What is lost?* A turn that was under way: the message is handled by another. Who is killed five times in
  the middle of the same turn, whatever the reason, finds its message set aside: nobody can tell that from
  a message that kills.

Who does what:

    Daemon (daemon) --> Delivery (delivery): one worker per mailbox that is not empty
        |                   |
        +------> Lives (lives): which provider sessions are alive (provider)
        |                   |
        +------> Journal (journal): check, write, one at a time --> DaemonStore (sqlite, files) --> State
        |
    recovery: what is due after a crash, as a pure function of State; tree, mailbox: questions to it
"""
