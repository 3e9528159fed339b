"""Other people's checkpointers and frameworks, one adapter file each, and how they are put to the test.

An adapter's file declares what it needs (PEP 723) and what the library promises; nothing here imports it.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent

# name -> file and class
_FILES = {
    "adk-database": "adk_sessions.py:Database",
    "adk-sqlite": "adk_sessions.py:Sqlite",
    "agent-framework-file-checkpoints": "agent_framework_files.py:Checkpoints",
    "agent-framework-file-history": "agent_framework_files.py:History",
    "dbos-sqlite": "dbos_sqlite.py:Sqlite",
    "langgraph-sqlite": "langgraph_sqlite.py:Sqlite",
    "llama-index-workflows-sqlite": "llama_index_workflows.py:Sqlite",
    "reference-agent-files": "reference_stores.py:Files",
    "reference-agent-sqlite": "reference_stores.py:Sqlite",
    "strands-file": "strands_file.py:File",
}

TARGETS = {name: str(HERE / place) for name, place in _FILES.items()}
