"""Third-party checkpointers and frameworks, one adapter file each, and the scenarios that test them.

An adapter's file declares its dependencies (PEP 723) and what the library promises; nothing here imports
it.
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
    "burr-sqlite": "burr_sqlite.py:Sqlite",
    "crewai-sqlite": "crewai_sqlite.py:Sqlite",
    "dbos-agent": "dbos_agent.py:Workflow",
    "dbos-sqlite": "dbos_sqlite.py:Sqlite",
    "langchain-file-history": "langchain_file.py:FileHistory",
    "langgraph-agent": "langgraph_agent.py:Sync",
    "langgraph-agent-async": "langgraph_agent.py:Async",
    "langgraph-agent-exit": "langgraph_agent.py:Exit",
    "langgraph-async-sqlite": "langgraph_sqlite.py:AsyncSqlite",
    "langgraph-memory": "langgraph_sqlite.py:Memory",
    "langgraph-sqlite": "langgraph_sqlite.py:Sqlite",
    "langgraph-sqlite-uncommitted": "langgraph_sqlite.py:Uncommitted",
    "llama-index-workflows-sqlite": "llama_index_workflows.py:Sqlite",
    "openai-agents-advanced-sqlite": "openai_agents.py:AdvancedSqlite",
    "openai-agents-agent": "openai_agents_agent.py:Sessions",
    "openai-agents-sqlite": "openai_agents.py:Sqlite",
    "pydantic-graph-file": "pydantic_graph_file.py:FilePersistence",
    "reference-agent": "reference_agents.py:Sqlite",
    "reference-agent-files": "reference_stores.py:Files",
    "reference-agent-on-files": "reference_agents.py:Files",
    "reference-agent-sqlite": "reference_stores.py:Sqlite",
    "strands-file": "strands_file.py:File",
}

TARGETS = {name: str(HERE / place) for name, place in _FILES.items()}
