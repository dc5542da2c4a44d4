"""Benchmarks: each module measures one thing and returns a report; the CLI prints it."""
