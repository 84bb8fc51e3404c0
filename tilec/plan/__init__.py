"""How the machine will do it: one file a decision; `planner.plan` takes them in order, `plan.Plan` is their sum."""
