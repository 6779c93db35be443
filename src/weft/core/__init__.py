"""Operator records, the one dispatch point, and the tape."""
