"""Spelling a Plan as CUDA: names, expressions, the contexts of the templates, and the templates themselves."""
