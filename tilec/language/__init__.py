"""What an author may write: one file a family of primitives; `catalogue` is what the evaluator looks names up in."""
