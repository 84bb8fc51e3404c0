"""`tilec tune`: tries a kernel's block sizes, stages and threads, and keeps the fastest that is right.

    candidates (space) -> compiled in parallel (job, pool) -> measured on GPUs, in processes that may die (worker, meter)
    -> a table on disk that is resumed (table) -> the finalists once more (search) -> the winner as a .cu
"""
