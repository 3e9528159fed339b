"""Results for people and for other programs: terminal, JSON, Markdown, HTML, badges, JUnit."""
