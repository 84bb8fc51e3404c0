"""Features of the language from the source text to the running kernel."""
