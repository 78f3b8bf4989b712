"""The parts of a run, each in a process of its own, with seconds of its own."""
