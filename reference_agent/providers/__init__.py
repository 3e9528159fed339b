"""Providers: sources of model answers behind one interface.

`base` has the interface and its plain data, `scripted` a model that plays a script in this process,
`openai_http` any service that speaks the OpenAI-compatible chat-completions protocol. This module imports
only `base`: a process that plays a script never pays for an HTTP client.
"""

from reference_agent.providers.base import Answer, ModelError, Provider, TextDelta, ToolSpec, Usage

__all__ = ["Answer", "ModelError", "Provider", "TextDelta", "ToolSpec", "Usage"]
