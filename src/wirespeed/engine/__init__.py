"""The graph, the workers, the counters."""
