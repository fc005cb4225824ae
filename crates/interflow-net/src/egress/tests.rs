//! The way out as a whole, against scripted origins over loopback.
