"""The services around the agent under crashes: waits, tokens, boots, HTTP."""
