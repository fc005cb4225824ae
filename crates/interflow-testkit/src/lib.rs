//! Origins, fake providers and clients for tests and benches.
