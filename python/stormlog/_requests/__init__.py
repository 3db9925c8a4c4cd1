"""Requests to a recorded process: taking them, and the snapshots that answer them. Private."""
