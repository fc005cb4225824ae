//! The HTTP/1 client driver.
