"""The command about logins: log in, log out, show a login and its token."""
