//! The media of a body: where they are, of what kind, and what is replaced if they are removed.

use std::ops::Range;

use super::super::media::{self, BlobContent};
use super::super::{MediaKind, MediaSpan, SpanKind};
use super::{ContainerFrame, SpanWalker};

impl SpanWalker<'_> {
    pub(super) fn blob(&mut self, range: Range<usize>, key: Range<usize>) {
        match media::classify_blob(self.bytes(&range)) {
            BlobContent::Address if self.events => {}
            BlobContent::Address => {
                let is_image = |key: &Range<usize>| *self.word(key) == *b"image_url";
                let frame = self.frames.last();
                if is_image(&key) || frame.is_some_and(|f| is_image(&f.key) || *self.word(&f.key) == *b"source") {
                    self.out.media_tokens = self.out.media_tokens.saturating_add(media::IMAGE_TOKENS);
                }
                self.address(&range);
            }
            BlobContent::Text => self.push_span(range, Some(key), SpanKind::Text),
            BlobContent::Base64(skip, media_type) => {
                let media_type = media_type.map(|t| t.start + range.start..t.end + range.start);
                let open = MediaSpan {
                    kind: MediaKind::Document,
                    // Without a content part around it, the value is replaced by an empty string.
                    whole: range.start - 1..range.end + 1,
                    stand_in: "\"\"".into(),
                };
                // Parameters of the media type, such as a name.
                let parameters = media_type.as_ref().map_or(0, |t| t.end + 1)..range.start + skip.saturating_sub(8);
                if media_type.is_some() && parameters.start < parameters.end {
                    self.push_span(parameters, Some(key.clone()), SpanKind::Text);
                }
                let at = self.out.spans.len();
                self.push_span(range.start + skip..range.end, Some(key.clone()), SpanKind::Media(open));
                if self.out.spans.len() > at {
                    if let Some(t) = media_type {
                        self.classify_media(at, &t, &key);
                    }
                    if let Some(frame) = self.frames.last_mut() {
                        frame.media.push(at);
                    }
                }
            }
        }
    }

    /// Sets the kind of media by its media type, which may come before or after the data. Base64 of a text type
    /// becomes text.
    fn classify_media(&mut self, at: usize, media_type: &Range<usize>, key: &Range<usize>) {
        let media_kind = media::media_span_kind(&self.word(media_type), &self.word(key));
        if let Some(span) = self.out.spans.get_mut(at) {
            match (media_kind, &mut span.kind) {
                (Ok(text), kind @ SpanKind::Media(_)) => {
                    // Base64 has four characters for three bytes.
                    self.out.text_bytes += span.range.len() * 3 / 4;
                    *kind = text;
                }
                (Err(found), SpanKind::Media(media)) => media.kind = found,
                _ => {}
            }
        }
    }

    /// The kind of media is determined by sibling members; its content part is what is replaced. Media in a member
    /// that is not a content part is passed on to the container around it.
    pub(super) fn close_media(&mut self, frame: &ContainerFrame, range: &Range<usize>, element: bool) {
        for &at in &frame.media {
            if let Some(t) = frame.media_type.clone() {
                self.classify_media(at, &t, &frame.key);
            }
            let key = &*self.word(&frame.key);
            let part = self.media_at(at);
            let Some(media) = part else { continue };
            if media.kind == MediaKind::Document
                && let Err(kind) = media::media_span_kind(b"", key)
            {
                media.kind = kind;
            }
        }
        // The data is in a member of the content part, such as `source` or `inline_data`: what is to be replaced is the
        // part around it.
        if !frame.object || !element {
            let list = !frame.object && *self.word(&frame.key) == *b"images";
            for &at in &frame.media {
                if list && let Some(media) = self.media_at(at) {
                    let whole = range.start + 1..range.end - 1;
                    *media = MediaSpan { kind: MediaKind::Image, whole, stand_in: String::new() };
                }
            }
            if !list && let Some(around) = self.frames.last_mut() {
                around.media.extend(&frame.media);
            }
            return;
        }
        let kind = frame.kind.as_ref().map(|kind| self.word(kind));
        for &at in &frame.media {
            if let Some(media) = self.media_at(at) {
                media.whole = range.clone();
                media.stand_in = media::placeholder_part(kind.as_deref(), media.kind);
            }
        }
    }

    fn media_at(&mut self, at: usize) -> Option<&mut MediaSpan> {
        match &mut self.out.spans.get_mut(at)?.kind {
            SpanKind::Media(media) => Some(media),
            _ => None,
        }
    }
}
