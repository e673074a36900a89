"""Fixtures for the tests of HTTP connections."""

from tests.transports.conftest import certificate as certificate
