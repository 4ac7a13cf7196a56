"""The pure half of Coresteer: no I/O, no clock, no globals, no unseeded randomness.

Agent and backend call the same functions over the same values, so a preview cannot differ from the
decision it previews, and a recorded trace can be replayed.
"""
