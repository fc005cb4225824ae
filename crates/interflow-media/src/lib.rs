//! HLS, DASH, CENC decryption, signed links and playlists.
