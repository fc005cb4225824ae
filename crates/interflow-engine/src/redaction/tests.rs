//! Redaction over bodies and streams of every provider.
