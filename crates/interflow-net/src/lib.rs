//! Accepting, dialling and speaking: ingress, egress, relay and the certificate authority.
