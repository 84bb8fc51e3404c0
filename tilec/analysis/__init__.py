"""Facts about index expressions: ranges, divisors, linear forms, simplification and proofs. Never changes a meaning."""
