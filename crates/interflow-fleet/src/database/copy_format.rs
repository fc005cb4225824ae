//! Rows in the binary format of COPY, sent in large pieces: each piece wakes the thread of the connection, which costs more
//! than the row of a small body.

use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use tokio_postgres::{CopyInSink, Error, Transaction};
use uuid::Uuid;

use crate::database::rows::clean;

/// The signature, no flags, and no extension.
const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What stands in the place of the next row's number of columns after the last one.
const END: i16 = -1;
/// Bytes that are collected before they are sent.
const PIECE: usize = 128 << 10;
/// The number of the type `text`.
const TEXT: i32 = 25;

/// Rows, or parts of them. Each value follows its length; that of NULL is -1.
#[derive(Clone, Default)]
pub(crate) struct CopyRows(BytesMut);

impl CopyRows {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(BytesMut::with_capacity(bytes))
    }

    /// Begins a row of so many columns, whose values follow.
    pub(crate) fn row(&mut self, columns: i16) {
        self.0.put_i16(columns);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // The server refuses values that are as long as that.
        self.0.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.put_slice(bytes);
    }

    pub(crate) fn int2(&mut self, value: i16) {
        self.0.put_i32(2);
        self.0.put_i16(value);
    }

    pub(crate) fn int8(&mut self, value: i64) {
        self.0.put_i32(8);
        self.0.put_i64(value);
    }

    pub(crate) fn optional_int8(&mut self, value: Option<i64>) {
        if let Some(value) = value { self.int8(value) } else { self.null() }
    }

    pub(crate) fn uuid(&mut self, value: Uuid) {
        self.bytes(value.as_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        if text.contains('\0') {
            self.bytes(clean(text).as_bytes());
        } else {
            self.bytes(text.as_bytes());
        }
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        if let Some(text) = text { self.text(text) } else { self.null() }
    }

    /// An array of texts.
    pub(crate) fn texts<'a>(&mut self, texts: impl Iterator<Item = &'a str>) {
        let at = self.0.len();
        self.0.put_slice(&[0; 4]);
        let mut count = 0;
        // Dimensions, whether there are NULLs, the type; of the only dimension its length and first index.
        for header in [1, 0, TEXT, 0, 1] {
            self.0.put_i32(header);
        }
        for text in texts {
            self.text(text);
            count += 1;
        }
        if count == 0 {
            // An empty array has no dimension.
            self.0.truncate(at + 16);
            self.0[at + 4..at + 8].fill(0);
        } else {
            self.0[at + 16..at + 20].copy_from_slice(&i32::to_be_bytes(count));
        }
        let len = self.0.len() - at - 4;
        self.0[at..at + 4].copy_from_slice(&i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes());
    }

    /// Values that were encoded elsewhere.
    pub(crate) fn values(&mut self, encoded: &Self) {
        self.0.put_slice(&encoded.0);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn null(&mut self) {
        self.0.put_i32(-1);
    }
}

/// A COPY into a table.
pub(crate) struct CopyWriter {
    pub(crate) rows: CopyRows,
    sink: Pin<Box<CopyInSink<Bytes>>>,
}

impl CopyWriter {
    /// `into` is a table with its columns in brackets.
    pub(crate) async fn begin(transaction: &Transaction<'_>, into: &str) -> Result<Self, Error> {
        let sink = transaction.copy_in(&format!("COPY {into} FROM STDIN (FORMAT binary)")).await?;
        let mut rows = CopyRows::with_capacity(PIECE + PIECE / 4);
        rows.0.put_slice(HEADER);
        Ok(Self { rows, sink: Box::pin(sink) })
    }

    /// Sends the rows that were written, if they are enough for a piece; returns whether they are.
    pub(crate) async fn send_piece(&mut self) -> Result<bool, Error> {
        if self.rows.0.len() < PIECE {
            return Ok(false);
        }
        let piece = self.rows.0.split().freeze();
        self.rows.0.reserve(PIECE + PIECE / 4);
        // While the connection sends it, the next one is written.
        self.sink.feed(piece).await?;
        Ok(true)
    }

    /// Sends the rest; returns the number of rows.
    pub(crate) async fn finish(mut self) -> Result<u64, Error> {
        self.rows.0.put_i16(END);
        self.sink.feed(self.rows.0.split().freeze()).await?;
        self.sink.as_mut().finish().await
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::{ToSql, Type};

    use super::*;

    /// The encoding of the client's own library, with its length.
    fn expected(value: &dyn ToSql, ty: &Type) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        let null = value.to_sql_checked(ty, &mut bytes).unwrap();
        let len = if matches!(null, tokio_postgres::types::IsNull::Yes) { -1 } else { bytes.len() as i32 };
        [&len.to_be_bytes()[..], &bytes].concat()
    }

    fn encoded(write: impl FnOnce(&mut CopyRows)) -> Vec<u8> {
        let mut rows = CopyRows::default();
        write(&mut rows);
        rows.0.to_vec()
    }

    #[test]
    fn values_are_encoded_as_by_the_client_library() {
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(encoded(|r| r.uuid(id)), expected(&id, &Type::UUID));
        assert_eq!(encoded(|r| r.int2(-7)), expected(&-7i16, &Type::INT2));
        assert_eq!(encoded(|r| r.int8(1 << 40)), expected(&(1i64 << 40), &Type::INT8));
        assert_eq!(encoded(|r| r.optional_int8(None)), expected(&None::<i64>, &Type::INT8));
        assert_eq!(encoded(|r| r.optional_text(Some("ä"))), expected(&"ä", &Type::TEXT));
        assert_eq!(encoded(|r| r.optional_text(None)), expected(&None::<&str>, &Type::TEXT));
        assert_eq!(encoded(|r| r.text("a\0b")), expected(&"a\u{FFFD}b", &Type::TEXT));
        assert_eq!(encoded(|r| r.bytes(b"\0x")), expected(&&b"\0x"[..], &Type::BYTEA));
        // As the server writes it; the library writes a dimension of no length.
        assert_eq!(encoded(|r| r.texts([].into_iter())), [12, 0, 0, TEXT].map(i32::to_be_bytes).concat());
        for texts in [vec!["a"], vec!["a", "", "c\u{e9}"]] {
            assert_eq!(encoded(|r| r.texts(texts.iter().copied())), expected(&texts, &Type::TEXT_ARRAY), "{texts:?}");
        }
    }
}
