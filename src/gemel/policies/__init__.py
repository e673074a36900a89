"""Policies: rules that allow, deny or ask a person about calls of tools, as middleware of servers and clients."""

from gemel.decisions import Effect as Effect
from gemel.policies.policy import Policy as Policy
from gemel.policies.request import Hints as Hints
from gemel.policies.request import PolicyRequest as PolicyRequest

__all__ = ["Effect", "Hints", "Policy", "PolicyRequest"]
