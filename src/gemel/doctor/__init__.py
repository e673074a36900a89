"""What known hosts don't support in a server: rules as data, each with a source, and the check."""

from gemel.doctor.check import Finding as Finding
from gemel.doctor.check import Offers as Offers
from gemel.doctor.check import check as check
from gemel.doctor.check import examine as examine
from gemel.doctor.hosts import HOSTS as HOSTS
from gemel.doctor.hosts import Rule as Rule
from gemel.doctor.hosts import Severity as Severity

__all__ = ["HOSTS", "Finding", "Offers", "Rule", "Severity", "check", "examine"]
