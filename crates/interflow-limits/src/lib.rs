//! Rate, concurrency and budget limits.
