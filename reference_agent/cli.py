"""`reference-agent`: the durable agent in a terminal. argparse, because it starts fast."""

from __future__ import annotations

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(prog="reference-agent", description=__doc__)
    parser.parse_args()


if __name__ == "__main__":
    main()
