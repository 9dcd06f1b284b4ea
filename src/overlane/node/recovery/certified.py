"""Which brokers a host may continue, by its certificate.

Where brokers prove who they are by certificates, a host that continues another broker has to prove to be it: to
neighbours, to its mirrors and, by its incarnation proof, to brokers further away. Its certificate has the names of all
brokers that it may be, its own first.
"""

import logging

from overlane.coordination.records import is_name
from overlane.node.recovery.host_options import HostOptions

log = logging.getLogger("overlane.recovery")


def named_in_certificate(options: HostOptions) -> tuple[str, ...]:
    """Empty where there are no certificates: then any."""
    security = options.network.security
    if not security.overlay_tls:
        return ()
    # Only where it is needed, since it takes as long to load as much of the rest.
    from overlane.node.security.incarnation_proof import brokers_in_file

    named = tuple(sorted(filter(is_name, brokers_in_file(security.certificate))))
    if options.is_home and not set(named) - {options.host}:
        log.warning(
            "the certificate of %s names no other broker: this host cannot have copies of any (docs/recovery.md)",
            options.host,
        )
    return named or (options.host,)
