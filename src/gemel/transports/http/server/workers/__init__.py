"""Several processes that serve the same app on the same port. POSIX only.

Workers of one machine are started, watched and reloaded. Nothing beyond that is planned: several machines, and scaling by load, are
for a load balancer, systemd or Kubernetes.
"""
