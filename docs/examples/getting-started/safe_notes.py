"""The notes of a chat: one JSON file per session, replaced as a whole."""

import json
import os
from pathlib import Path


class Notes:
    def open(self, directory):
        self.directory = Path(directory)

    def save(self, session, state):
        path = self.directory / f"{session}.json"
        aside = path.with_suffix(".tmp")
        with aside.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())  # the content is durable before it gets its name
        aside.replace(path)  # a reader sees the old file or the new one, never half of one
        directory = os.open(self.directory, os.O_RDONLY)
        os.fsync(directory)  # the new name is durable before save() returns
        os.close(directory)

    def load(self, session):
        path = self.directory / f"{session}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def close(self):
        pass
