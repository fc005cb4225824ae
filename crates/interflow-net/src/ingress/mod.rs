//! Accepting: listeners, what a fresh connection speaks, and HTTP as a server.
