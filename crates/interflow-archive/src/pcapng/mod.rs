//! Synthesizes packets from recorded flows, for Wireshark and other readers of pcapng (draft-ietf-opsawg-pcapng).
//!
//! Traffic is recorded above TCP and TLS, so both are generated: Ethernet, IP and TCP with valid numbers and checksums
//! between the recorded addresses, and TLS 1.3 with generated keys in Decryption Secrets Blocks (and in a key log, if
//! requested). HTTP/1 is written as recorded, HTTP/2 as frames with uncompressed headers. Sizes, order and times of
//! packets differ from those on the wire; a comment in the file says so.

mod block;
mod connection;
mod http1;
mod http2;
mod sides;
mod tcp;
mod tls;

use std::collections::HashMap;
use std::io::{self, Write};

use interflow_types::{EntryKind, Scheme, labelled_enum};

use self::connection::{ConnectionKey, PacketConnection};
use self::sides::{FlowSide, SideContents};
use super::{BodySource, FlowExporter};
use interflow_store::{FlowKind, FlowRecord};

labelled_enum! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum PacketSides {
        /// Between client and proxy.
        #[default]
        Client "client",
        /// Between proxy and origin, or an upstream proxy.
        Upstream "upstream",
        /// Both, each as a separate interface.
        Both "both",
    }
}

impl PacketSides {
    const fn interfaces(self) -> &'static [Interface] {
        match self {
            Self::Client => &[Interface::Client],
            Self::Upstream => &[Interface::Upstream],
            Self::Both => &[Interface::Client, Interface::Upstream],
        }
    }
}

impl std::str::FromStr for PacketSides {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let side = Self::ALL.into_iter().find(|side| side.as_str() == name);
        side.ok_or_else(|| format!("'{name}' is not a side: choose one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// One side; also the number of its interface in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Interface {
    Client,
    Upstream,
}

#[derive(Default)]
pub struct PcapngOptions<'w> {
    /// Which side of the flows to export.
    pub leg: PacketSides,
    /// A second destination of the secrets, in the format of `SSLKEYLOGFILE`.
    pub keylog: Option<Box<dyn Write + 'w>>,
}

/// Maximum number of concurrently open connections in a file; the least recently used one is closed for a new one.
const MAX_OPEN: usize = 4096;

/// Writes flows as packets, one flow after another, so packets of concurrent flows are not in chronological order.
pub struct PcapngWriter<'w, W: Write> {
    out: W,
    options: PcapngOptions<'w>,
    open: HashMap<(Interface, u64), PacketConnection>,
    /// Number of flows so far, to identify unnumbered connections and to find the oldest.
    flows: u64,
}

impl<'w, W: Write> PcapngWriter<'w, W> {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut out: W, options: PcapngOptions<'w>) -> io::Result<Self> {
        block::section(&mut out)?;
        block::interface(&mut out, "client", "between the client and Interflow")?;
        // Both are always described, so that the numbers of interfaces do not depend on the options.
        block::interface(&mut out, "upstream", "between Interflow and the origin")?;
        Ok(Self { out, options, open: HashMap::new(), flows: 0 })
    }

    fn write_side(&mut self, flow: &FlowSide<'_>) -> io::Result<()> {
        let FlowSide { side, row, .. } = *flow;
        let Some(ends) = ConnectionKey::for_flow(side, row, self.flows) else { return Ok(()) };
        let key = (side, ends.number);
        let mut connection = match self.open.remove(&key) {
            Some(connection) if connection.matches(&ends) => connection,
            other => {
                // The same number with other facts: a different connection, for example after an import.
                if let Some(mut other) = other {
                    other.close(&mut self.out)?;
                }
                let connection = PacketConnection::new(side, ends, row.started.micros(), self.flows);
                self.begin(connection, side, row)?
            }
        };
        connection.used = self.flows;
        self.exchange(&mut connection, flow)?;
        if connection.over {
            return connection.close(&mut self.out);
        }
        self.open.insert(key, connection);
        self.close_oldest()
    }

    /// Opens the connection: TCP, the tunnel through a proxy, TLS, and the HTTP/2 preface.
    fn begin(
        &mut self,
        mut connection: PacketConnection,
        side: Interface,
        row: &FlowRecord,
    ) -> io::Result<PacketConnection> {
        let out = &mut self.out;
        connection.tcp.open(out)?;
        let is_tunnelled = match side {
            Interface::Client => row.transport == EntryKind::Connect && row.client.local.is_some(),
            Interface::Upstream => {
                row.upstream.as_ref().is_some_and(|u| u.via.is_some()) && row.scheme == Scheme::Https
            }
        };
        if is_tunnelled {
            http1::connect(&mut connection, out, &row.authority.to_string())?;
        }
        if connection.ends.tls {
            let secrets = connection.secrets(&row.id.to_string());
            // A reader needs the secrets before the first encrypted packet.
            block::secrets(out, &secrets)?;
            if let Some(keylog) = &mut self.options.keylog {
                keylog.write_all(secrets.as_bytes())?;
            }
            let name = row.client.tls.as_ref().and_then(|t| t.sni.clone());
            connection.handshake(out, &name.unwrap_or_else(|| row.host().into_owned()))?;
        }
        if connection.ends.http2 {
            http2::write_preface(&mut connection, out)?;
        }
        Ok(connection)
    }

    fn exchange(&mut self, connection: &mut PacketConnection, flow: &FlowSide<'_>) -> io::Result<()> {
        let out = &mut self.out;
        match flow.row.kind {
            FlowKind::Tunnel => {
                // Tunnel data was not recorded, or was imported as messages.
                connection.over = true;
                http1::messages(connection, out, flow)
            }
            _ if connection.ends.http2 => http2::exchange(connection, out, flow),
            _ => http1::exchange(connection, out, flow),
        }
    }

    fn close_oldest(&mut self) -> io::Result<()> {
        if self.open.len() <= MAX_OPEN {
            return Ok(());
        }
        let oldest = self.open.iter().min_by_key(|(_, c)| c.used).map(|(key, _)| *key);
        let oldest = oldest.and_then(|key| self.open.remove(&key));
        oldest.map_or(Ok(()), |mut connection| connection.close(&mut self.out))
    }
}

impl<W: Write> FlowExporter for PcapngWriter<'_, W> {
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        self.flows += 1;
        for side in self.options.leg.interfaces().iter().copied() {
            let contents = SideContents { side, whole: row, contents };
            self.write_side(&FlowSide { side, row: &side.view(row), contents: &contents })?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut open: Vec<PacketConnection> = std::mem::take(&mut self.open).into_values().collect();
        // A map has no order; sorted, so that the file is deterministic.
        open.sort_by_key(|c| (c.used, c.ends.number));
        for mut connection in open {
            connection.close(&mut self.out)?;
        }
        if let Some(keylog) = &mut self.options.keylog {
            keylog.flush()?;
        }
        self.out.flush()
    }
}
