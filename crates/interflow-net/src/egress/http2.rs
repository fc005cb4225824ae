//! The HTTP/2 client driver.
