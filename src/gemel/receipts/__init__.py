"""Receipts: one line of JSON for each tool call that ended, in a chain of hashes."""

from gemel.receipts.canonical import canonical_json
from gemel.receipts.middleware import Receipts
from gemel.receipts.verification import BrokenChain, ChainReport, verify

__all__ = ["BrokenChain", "ChainReport", "Receipts", "canonical_json", "verify"]
