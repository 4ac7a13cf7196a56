"""A simulated fleet to try Coresteer with, which `coresteer up` starts and removes on request."""
