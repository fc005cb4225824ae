//! Capture, store, retention, search and the archive formats.
