//! Parquet: every flow is a row, groups of rows are bounded, and what was recorded is what is read back.

use interflow_store::FlowWithBodies;
use std::io::Write;

use bytes::Bytes;
use interflow_archive::{ArchiveFormat, ExportOptions, exporter_with};
use interflow_types::Direction;
use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use super::{exchange, samples};

fn file(flows: &[FlowWithBodies], bodies: bool) -> SerializedFileReader<Bytes> {
    let mut out = Vec::new();
    let options = ExportOptions { bodies, ..ExportOptions::default() };
    let mut exporter = exporter_with(ArchiveFormat::Parquet, &mut out, options).unwrap();
    flows.iter().for_each(|flow| exporter.flow(&flow.row, flow).unwrap());
    exporter.finish().unwrap();
    drop(exporter);
    SerializedFileReader::new(Bytes::from(out)).unwrap()
}

fn rows(file: &SerializedFileReader<Bytes>) -> Vec<Row> {
    file.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn value<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap_or_else(|| panic!("no column {name}")).1
}

fn text(row: &Row, name: &str) -> String {
    match value(row, name) {
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec()).unwrap(),
        Field::Null => "null".into(),
        other => other.to_string(),
    }
}

#[test]
fn every_flow_is_a_row_with_its_values() {
    let flows = samples();
    let rows = rows(&file(&flows, true));
    assert_eq!(rows.len(), flows.len());
    for (flow, row) in flows.iter().zip(&rows) {
        assert_eq!(text(row, "id"), flow.row.id.to_string());
        assert_eq!(text(row, "url"), flow.row.url());
        let status = flow.row.response.as_ref().map_or("null".into(), |r| r.status.to_string());
        assert_eq!(text(row, "status"), status);
        for (name, direction) in [("request", Direction::Request), ("response", Direction::Response)] {
            let kept = flow.row.body(direction).map_or(0, |b| b.kept);
            let expected = if kept > 0 { Some(flow.bytes(direction)) } else { None };
            match (value(row, &format!("{name}_body")), expected) {
                (Field::Bytes(bytes), Some(expected)) => assert_eq!(bytes.data(), &expected[..], "{}", flow.row.url()),
                (Field::Null, None) => {}
                (other, expected) => panic!("{other:?} in place of {expected:?}"),
            }
        }
    }
    let find = |path: &str| rows.iter().find(|row| text(row, "path") == path).unwrap();
    let http2 = find("/h2");
    for (name, expected) in [
        ("method", "GET"),
        ("host", "api.example.com"),
        ("port", "443"),
        ("state", "complete"),
        ("kind", "http"),
        ("scheme", "https"),
        ("user", "alice"),
        ("comment", "a \"comment\""),
        ("client_address", "127.0.0.1:50000"),
        ("client_ja4", "t13d"),
        ("request_version", "HTTP/2"),
        ("request_headers", r#"[["cookie","s=1; t=2"]]"#),
        ("first_byte_us", "30"),
        ("duration_us", "40"),
        ("imported", "false"),
        ("tags", r#"["one", "two words, 100%"]"#),
        ("error_kind", "null"),
    ] {
        assert_eq!(text(http2, name), expected, "{name}");
    }
    assert!(matches!(value(http2, "started"), Field::TimestampMicros(_)));
    let (failed, capped) = (find("/gone"), find("/big"));
    assert_eq!((text(failed, "error_blame"), text(failed, "response_size")), ("upstream".into(), "null".into()));
    assert_eq!(text(failed, "tags"), "[]", "no tags are an empty list");
    assert_eq!((text(capped, "response_size"), text(capped, "response_recorded")), ("9000".into(), "5".into()));
    let tunnel = rows.iter().find(|row| text(row, "kind") == "tunnel").unwrap();
    assert_eq!((text(tunnel, "method"), text(tunnel, "tunnel_received")), ("null".into(), "2000".into()));
}

#[test]
fn bodies_are_null_unless_they_are_exported() {
    let file = file(&samples(), false);
    for row in rows(&file) {
        assert_eq!((value(&row, "request_body"), value(&row, "response_body")), (&Field::Null, &Field::Null));
    }
    let schema = file.metadata().file_metadata();
    assert_eq!(schema.schema_descr().num_columns(), 45, "the schema is the same with and without bodies");
    let version = schema.key_value_metadata().unwrap().iter().find(|pair| pair.key == "interflow").unwrap();
    assert_eq!(version.value.as_deref(), Some("1"));
}

#[test]
fn columns_are_compressed_with_zstd() {
    let file = file(&samples(), true);
    for column in file.metadata().row_group(0).columns() {
        assert!(matches!(column.compression(), Compression::ZSTD(_)), "{:?}", column.column_path());
    }
}

/// An output that knows how much was written to it.
struct Counted<'a>(&'a std::cell::Cell<usize>);

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn row_groups_are_bounded_in_rows_and_bytes_and_written_as_they_fill() {
    let small = exchange("GET", "/small", &[], b"", b"x");
    let many: Vec<_> = std::iter::repeat_n(small.clone(), 40_000).collect();
    let file = file(&many, false);
    let groups: Vec<i64> = file.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups.iter().sum::<i64>(), 40_000);
    assert!(groups.len() > 1 && groups.iter().all(|rows| *rows <= 16 << 10), "{groups:?}");

    // Random enough not to be compressed away.
    let mut seed = 1_u64;
    let noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    });
    let large = exchange("GET", "/large", &[], b"", &noise.take(9 << 20).collect::<Vec<_>>());
    let written = std::cell::Cell::new(0);
    let options = ExportOptions { bodies: true, ..ExportOptions::default() };
    let mut exporter = exporter_with(ArchiveFormat::Parquet, Counted(&written), options).unwrap();
    for flow in [&large, &large, &large] {
        exporter.flow(&flow.row, flow).unwrap();
    }
    assert!(written.get() < 1 << 20, "a group that is not full waits");
    exporter.flow(&large.row, &large).unwrap();
    assert!(written.get() > 36 << 20, "a group of 32 MiB is written: {}", written.get());
    exporter.finish().unwrap();
}
