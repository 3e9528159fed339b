"""One turn: the model decides, tools act, and each step is durable before the next one relies on it."""
