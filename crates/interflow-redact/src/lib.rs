//! Detectors, policies, strategies, the vault, streaming redaction and restoration.
