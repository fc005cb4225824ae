//! Connections kept for the next request to the same place.
