"""What known hosts can't take of a server: rules as data, each with a source, and the check."""

from hinge.doctor.check import Finding as Finding
from hinge.doctor.check import Offers as Offers
from hinge.doctor.check import check as check
from hinge.doctor.check import examine as examine
from hinge.doctor.hosts import HOSTS as HOSTS
from hinge.doctor.hosts import Rule as Rule
from hinge.doctor.hosts import Severity as Severity

__all__ = ["HOSTS", "Finding", "Offers", "Rule", "Severity", "check", "examine"]
