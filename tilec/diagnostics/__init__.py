"""Diagnostics as values; see `core` for the types and `render` for the formats."""

from tilec.diagnostics.core import NOWHERE, CompileError, Diagnostic, Label, Severity, Span, error, note

__all__ = ["NOWHERE", "CompileError", "Diagnostic", "Label", "Severity", "Span", "error", "note"]
