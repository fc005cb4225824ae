//! HLS, DASH, CENC decryption, signed links and playlists.
#![forbid(unsafe_code)]
