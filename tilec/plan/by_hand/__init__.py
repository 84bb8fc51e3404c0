"""Kernels whose author orders the work: barriers of their own, roles of threads, copies and products that are queued and waited for.

`tiles` lays shared tiles as the copy engine and the products want them, `products` chooses instructions, `arrivals` says who arrives at
barriers, `checks` what is wrong with the order as far as it shows without running; `lower` makes the planned statements, which `plan`
records.
"""
