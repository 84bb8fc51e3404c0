"""`tilec bench`: a kernel timed beside a peer, as one should measure.

First right, then fast: a kernel whose result is wrong is never timed. Inputs are fresh N(0, 1), contenders take turns in one
process, the L2 cache is flushed (or buffers rotate), medians and spreads of all launches count, and the clocks are watched.

    bench.run(BenchRequest(...), compile, Machine()) -> Report
"""
