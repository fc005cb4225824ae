//! The certificate authority: it signs a leaf for each authority that is looked into.
