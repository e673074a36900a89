"""Authorization: a resource server and an OAuth proxy, an OAuth client, and what they share."""
