"""Layouts of on-chip memory: `fragment` for register tiles, `shared` for shared tiles, `atoms` for what instructions fix."""
