"""The notes of a chat: one JSON file per session."""

import json
from pathlib import Path


class Notes:
    def open(self, directory):
        self.directory = Path(directory)

    def save(self, session, state):
        (self.directory / f"{session}.json").write_text(json.dumps(state))

    def load(self, session):
        path = self.directory / f"{session}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def close(self):
        pass
