//! Streaming remuxer from MP4 to MPEG-TS: collects the init segment, then converts fragment by fragment.

use std::sync::Arc;

use bytes::Bytes;
use interflow_media::remux::{RemuxError, RemuxOptions, TsMuxer, TsSegment};

/// Remuxes unencrypted MP4 that starts with its init segment.
#[derive(Default)]
pub struct TsConverter {
    head: Vec<Bytes>,
    segment: Option<TsSegment>,
}

impl TsConverter {
    /// Adds decrypted bytes; `has_init` is set once the `moov` box has been read.
    pub fn push(&mut self, pieces: &mut Vec<Bytes>, has_init: bool, out: &mut Vec<Bytes>) -> Result<(), RemuxError> {
        if self.segment.is_none() {
            self.head.append(pieces);
            if !has_init {
                return Ok(());
            }
            let head = self.head.concat();
            let muxer = TsMuxer::new(&head, RemuxOptions::default())?;
            self.segment = Some(Arc::clone(&muxer).segment());
            pieces.push(Bytes::from(head));
            self.head.clear();
        }
        let Some(segment) = &mut self.segment else { return Ok(()) };
        pieces.drain(..).try_for_each(|piece| segment.push(piece, out))
    }

    /// Signals the end of input.
    pub fn finish(self, out: &mut Vec<Bytes>) -> Result<(), RemuxError> {
        self.segment.map_or(Err(RemuxError::NoTracks), |segment| segment.finish(out))
    }
}
