//! Entries for the archive formats: no file makes an import panic, and every imported flow can be exported to every format and
//! imported again.

use interflow_archive::{ArchiveFormat, ExportOptions, FlowWithBodies, exporter_with, import};

/// One entry over the inputs of one target.
pub type Entry = fn(&[u8]);

/// Every entry with the name of its target.
pub const ENTRIES: [(&str, Entry); 5] = [("har", har), ("jsonl", jsonl), ("saz", saz), ("fxzy", fxzy), ("mitm", mitm)];

/// A HAR.
pub fn har(data: &[u8]) {
    archive(ArchiveFormat::Har, data);
}

/// A file of lines.
pub fn jsonl(data: &[u8]) {
    archive(ArchiveFormat::Jsonl, data);
}

/// Fiddler's archive.
pub fn saz(data: &[u8]) {
    archive(ArchiveFormat::Saz, data);
}

/// Fluxzy's archive.
pub fn fxzy(data: &[u8]) {
    archive(ArchiveFormat::Fxzy, data);
}

/// mitmproxy's flow file.
pub fn mitm(data: &[u8]) {
    archive(ArchiveFormat::Mitm, data);
}

fn archive(format: ArchiveFormat, data: &[u8]) {
    let flows = read(format, data);
    for format in ArchiveFormat::ALL {
        let file = written(*format, &flows);
        if format.imports() {
            // mitmproxy stores a CONNECT with the flows in its tunnel, so a CONNECT without such flows is not exported.
            let left_out = |f: &&FlowWithBodies| {
                *format == ArchiveFormat::Mitm && f.row.request.as_ref().is_some_and(|r| r.method == "CONNECT")
            };
            let kept = flows.len() - flows.iter().filter(left_out).count();
            let found = read(*format, &file).len();
            assert_eq!(found, kept, "{format}");
        }
    }
    if format == ArchiveFormat::Jsonl {
        assert!(read(format, &written(format, &flows)) == flows);
    }
}

fn read(format: ArchiveFormat, data: &[u8]) -> Vec<FlowWithBodies> {
    let mut flows = Vec::new();
    let _ = import(Some(format), data, &mut |flow| {
        flows.push(flow);
        Ok(())
    });
    flows
}

fn written(format: ArchiveFormat, flows: &[FlowWithBodies]) -> Vec<u8> {
    let mut out = Vec::new();
    let options = ExportOptions { originals: true, ..ExportOptions::default() };
    let mut exporter = exporter_with(format, &mut out, options).expect("memory takes all");
    for flow in flows {
        exporter.flow(&flow.row, flow).expect("memory takes all");
    }
    exporter.finish().expect("memory takes all");
    drop(exporter);
    out
}
