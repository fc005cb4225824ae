//! SAZ, Fiddler's archive: a zip with three files per exchange, `raw/N_c.txt` with the client's request, `raw/N_s.txt`
//! with the server's response, `raw/N_m.xml` with times and flags, and `raw/N_w.txt` with the frames of a WebSocket.

mod export;
mod import;
mod session;

pub use export::SazWriter;
pub(super) use import::import;

mod flag {
    pub const HTTPS: u32 = 1;
    pub const IMPORTED: u32 = 1 << 10;
    pub const BLIND_TUNNEL: u32 = 1 << 12;
    pub const WEB_SOCKET: u32 = 1 << 18;
}
