//! permessage-deflate (RFC 7692): negotiation, and decompression with context takeover.

use flate2::Decompress;
use interflow_types::Headers;

use super::{FrameSender, WebSocketError};
use crate::content_coding::inflate;

/// The negotiated parameters: whether the client, or the server, resets its compression window for each message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermessageDeflate {
    pub client_no_context_takeover: bool,
    pub server_no_context_takeover: bool,
}

impl PermessageDeflate {
    /// Parses `Sec-WebSocket-Extensions` of the 101 response; `None` if no extension was negotiated.
    ///
    /// # Errors
    /// [`WebSocketError::Extension`] for any other extension, whose frames could not be interpreted.
    pub fn from_response(response: &Headers) -> Result<Option<Self>, WebSocketError> {
        let mut agreed = None;
        for extension in response.list_items("Sec-WebSocket-Extensions") {
            let deflate = Self::parse(extension)?;
            // The same extension twice would be two layers of compression.
            if agreed.replace(deflate).is_some() {
                return Err(WebSocketError::Extension);
            }
        }
        Ok(agreed)
    }

    /// Removes offers of extensions other than this one from a request, so that none is negotiated whose frames cannot
    /// be read.
    pub fn retain_offers(request: &mut Headers) {
        const NAME: &str = "Sec-WebSocket-Extensions";
        let offers: Vec<_> = request.list_items(NAME).map(<[u8]>::to_vec).collect();
        let supported: Vec<_> = offers.iter().filter(|offer| Self::parse(offer).is_ok()).cloned().collect();
        if supported.len() == offers.len() {
            return;
        }
        request.remove(NAME);
        if !supported.is_empty() {
            request.append_unchecked(NAME.as_bytes(), &supported.join(&b", "[..]));
        }
    }

    fn parse(extension: &[u8]) -> Result<Self, WebSocketError> {
        let mut parts = extension.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"permessage-deflate")) {
            return Err(WebSocketError::Extension);
        }
        let mut deflate = Self::default();
        for parameter in parts {
            deflate.take(parameter)?;
        }
        Ok(deflate)
    }

    /// Whether messages of this side refer to earlier ones (context takeover).
    pub const fn keeps_context(&self, sender: FrameSender) -> bool {
        match sender {
            FrameSender::Client => !self.client_no_context_takeover,
            FrameSender::Server => !self.server_no_context_takeover,
        }
    }

    /// Smaller windows than 32 KiB need no handling: the decompressor's is always that large.
    fn take(&mut self, parameter: &[u8]) -> Result<(), WebSocketError> {
        let name = parameter.split(|&b| b == b'=').next().unwrap_or_default().trim_ascii();
        match name.to_ascii_lowercase().as_slice() {
            b"client_no_context_takeover" => self.client_no_context_takeover = true,
            b"server_no_context_takeover" => self.server_no_context_takeover = true,
            // Their values need not be read.
            b"client_max_window_bits" | b"server_max_window_bits" => {}
            _ => return Err(WebSocketError::Extension),
        }
        Ok(())
    }
}

pub(super) struct MessageInflater {
    inflate: Decompress,
    keeps_context: bool,
}

impl MessageInflater {
    pub(super) fn new(deflate: PermessageDeflate, sender: FrameSender) -> Self {
        // Raw deflate: messages have no zlib header.
        Self { inflate: Decompress::new(false), keeps_context: deflate.keeps_context(sender) }
    }

    /// Decompresses more of a message and passes the output to `sink`.
    pub(super) fn push(&mut self, mut input: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), WebSocketError> {
        let mut pass = |out: &[u8]| {
            sink(out);
            Ok(())
        };
        while inflate(&mut self.inflate, &mut input, &mut pass).map_err(|_| WebSocketError::Deflate)? {
            // A final block (RFC 7692 7.2.3.4); the data after it starts with an empty window.
            self.inflate.reset(false);
        }
        Ok(())
    }

    /// Ends a message (RFC 7692 7.2.2).
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<(), WebSocketError> {
        // The sender removed this empty block from the end of the message (RFC 7692 7.2.1).
        self.push(&[0, 0, 0xff, 0xff], sink)?;
        if !self.keeps_context {
            // The next message starts with an empty window on both sides.
            self.inflate.reset(false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(value: &str) -> Result<Option<PermessageDeflate>, WebSocketError> {
        PermessageDeflate::from_response(&[("sec-websocket-extensions", value)].into_iter().collect())
    }

    #[test]
    fn only_offers_that_can_be_read_are_left() {
        for (offered, left) in [
            (
                "x-foo; a=1, permessage-deflate; client_max_window_bits, x-bar",
                Some("permessage-deflate; client_max_window_bits"),
            ),
            ("permessage-deflate; level=9", None),
            (
                "permessage-deflate,permessage-deflate;server_no_context_takeover",
                Some("permessage-deflate,permessage-deflate;server_no_context_takeover"),
            ),
        ] {
            let mut request: Headers = [("Sec-WebSocket-Extensions", offered)].into_iter().collect();
            PermessageDeflate::retain_offers(&mut request);
            assert_eq!(request.get_str("sec-websocket-extensions"), left, "{offered}");
        }
    }

    #[test]
    fn the_negotiated_extension_is_parsed() {
        let both = PermessageDeflate { client_no_context_takeover: true, server_no_context_takeover: true };
        for (value, expected) in [
            ("", Ok(None)),
            ("permessage-deflate", Ok(Some(PermessageDeflate::default()))),
            (
                "Permessage-Deflate; client_max_window_bits=15;server_max_window_bits=\"8\"",
                Ok(Some(PermessageDeflate::default())),
            ),
            ("permessage-deflate; server_no_context_takeover ; client_no_context_takeover", Ok(Some(both))),
            ("x-webkit-deflate-frame", Err(WebSocketError::Extension)),
            ("permessage-deflate, permessage-deflate", Err(WebSocketError::Extension)),
            ("permessage-deflate; level=9", Err(WebSocketError::Extension)),
        ] {
            assert_eq!(agreed(value), expected, "{value}");
        }
        assert!(
            !both.keeps_context(FrameSender::Client) && PermessageDeflate::default().keeps_context(FrameSender::Server)
        );
    }
}
