//! MP4 as it comes, MPEG-TS out: the init segment is gathered first, then fragments pass one by one.

use std::sync::Arc;

use bytes::Bytes;
use interflow_media::remux::{RemuxError, RemuxOptions, TsMuxer, TsSegment};

/// Remuxes clear MP4 whose init segment comes first.
#[derive(Default)]
pub struct TsConverter {
    head: Vec<Bytes>,
    segment: Option<TsSegment>,
}

impl TsConverter {
    /// Takes what was decrypted; `has_init` once the `moov` has passed.
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
        match &mut self.segment {
            Some(segment) => pieces.drain(..).try_for_each(|piece| segment.push(piece, out)),
            None => Ok(()),
        }
    }

    /// Says that nothing more comes.
    pub fn finish(self, out: &mut Vec<Bytes>) -> Result<(), RemuxError> {
        self.segment.map_or(Err(RemuxError::NoTracks), |segment| segment.finish(out))
    }
}
