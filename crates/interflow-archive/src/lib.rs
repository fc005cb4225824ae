//! Archive formats: export of recorded flows to files of other tools, and import.
//!
//! Export and import process one flow at a time and never hold a whole archive in memory. Body bytes come from a
//! [`BodySource`]; an import yields [`FlowWithBodies`].
#![forbid(unsafe_code)]

mod archive_progress;
pub mod content_coding;
pub mod diff;
mod frames;
pub mod fxzy;
pub mod har;
pub mod import_support;
pub mod jsonl;
mod mitm;
mod page;
pub mod parquet;
pub mod pcapng;
pub mod raw;
mod readable_bodies;
pub mod replay;
mod request;
pub mod saz;
pub mod snippet;
pub mod text;
mod unpacked;
pub mod view;
mod zip;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::str::FromStr;

pub use archive_progress::ArchiveProgress;
use bytes::Bytes;
use interflow_types::Direction;
pub use readable_bodies::{ReadableBodySource, for_each_readable};
use unpacked::Unpacked;

pub use interflow_store::FlowWithBodies;
use interflow_store::{BodyReader, BodyRecord, FlowParts, FlowRecord, FlowStore, MessageRecord, StoreError};

/// The recorded messages of a flow, in order.
pub type MessageIter<'a> = Box<dyn Iterator<Item = io::Result<MessageRecord>> + 'a>;

/// The bytes of recorded flows. A body may be read more than once, and each read starts at its beginning.
pub trait BodySource {
    /// The body in this direction, transfer coding removed, content coding kept; empty if not recorded.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>>;

    /// The body as received, before it was edited; empty if it was not edited or not recorded.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn original_body<'a>(&'a self, _: &'a FlowRecord, _: Direction) -> io::Result<Box<dyn Read + 'a>> {
        Ok(Box::new(io::empty()))
    }

    /// The messages in order.
    ///
    /// # Errors
    /// The messages cannot be read.
    fn messages<'a>(&'a self, flow: &'a FlowRecord) -> io::Result<MessageIter<'a>>;
}

/// Loads a flow with all its bytes.
///
/// # Errors
/// Its bytes cannot be read.
pub fn read_flow(row: &FlowRecord, contents: &dyn BodySource) -> io::Result<FlowWithBodies> {
    Ok(FlowWithBodies {
        request_body: all(contents.body(row, Direction::Request)?)?,
        response_body: all(contents.body(row, Direction::Response)?)?,
        original_bodies: [
            all(contents.original_body(row, Direction::Request)?)?,
            all(contents.original_body(row, Direction::Response)?)?,
        ],
        messages: contents.messages(row)?.collect::<io::Result<_>>()?,
        ..FlowWithBodies::new(row.clone())
    })
}

fn all(mut reader: Box<dyn Read + '_>) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

impl BodySource for FlowWithBodies {
    fn body<'a>(&'a self, _flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        Ok(Box::new(self.bytes(direction).as_ref()))
    }

    fn original_body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        let [request, response] = &self.original_bodies;
        let bytes = if direction == Direction::Request { request } else { response };
        let edited = flow.recorded_body(direction, true).is_some();
        Ok(if edited { Box::new(bytes.as_ref()) } else { Box::new(io::empty()) })
    }

    fn messages<'a>(&'a self, _flow: &'a FlowRecord) -> io::Result<MessageIter<'a>> {
        Ok(Box::new(self.messages.iter().cloned().map(Ok)))
    }
}

/// The bytes of a store's flows.
#[derive(Clone, Copy)]
pub struct StoreBodySource<'s>(pub &'s dyn FlowStore);

impl BodySource for StoreBodySource<'_> {
    fn body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        stored(flow.body(direction), |length| self.0.body(flow.id, direction, 0..length))
    }

    fn original_body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        let body = flow.recorded_body(direction, true);
        stored(body, |length| self.0.original_body(flow.id, direction, 0..length))
    }

    fn messages<'a>(&'a self, flow: &'a FlowRecord) -> io::Result<MessageIter<'a>> {
        Ok(message_pages(self.0, flow))
    }
}

/// A body of a store; empty if nothing of it is kept.
fn stored<'a>(
    body: Option<&BodyRecord>,
    open: impl FnOnce(u64) -> interflow_store::Result<BodyReader>,
) -> io::Result<Box<dyn Read + 'a>> {
    let Some(body) = body.filter(|body| body.kept > 0) else { return Ok(Box::new(io::empty())) };
    Ok(Box::new(open(body.kept).map_err(io::Error::other)?))
}

/// Messages that are read at once.
const PAGE: u64 = 256;

/// The messages of a flow, in pages, so that a long stream is not loaded as a whole. No page goes beyond the end.
fn message_pages<'a>(store: &'a dyn FlowStore, flow: &'a FlowRecord) -> MessageIter<'a> {
    let pages = (0..flow.messages).step_by(PAGE as usize);
    Box::new(pages.flat_map(move |from| match store.messages(flow.id, from..(from + PAGE).min(flow.messages)) {
        Ok(page) => page.into_iter().map(Ok).collect::<Vec<_>>(),
        // They are where the flow runs; an export of others must not fail for it.
        Err(StoreError::Elsewhere { .. }) => Vec::new(),
        Err(e) => vec![Err(io::Error::other(e))],
    }))
}

/// The bytes of a store's flows [as received](FlowRecord::as_it_came).
#[derive(Clone, Copy)]
pub struct OriginalBodySource<'s>(pub &'s dyn FlowStore);

impl BodySource for OriginalBodySource<'_> {
    fn body<'a>(&'a self, flow: &'a FlowRecord, direction: Direction) -> io::Result<Box<dyn Read + 'a>> {
        stored(flow.body(direction), |_| self.0.original_body(flow.id, direction, 0..u64::MAX))
    }

    fn messages<'a>(&'a self, flow: &'a FlowRecord) -> io::Result<MessageIter<'a>> {
        Ok(message_pages(self.0, flow))
    }
}

macro_rules! formats {
    ($($format:ident $name:literal $extensions:tt $import:literal $media:tt $doc:literal;)*) => {
        /// A format of recorded flows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ArchiveFormat { $(#[doc = $doc] $format,)* }

        impl ArchiveFormat {
            pub const ALL: &[Self] = &[$(Self::$format,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$format => $name,)* }
            }

            /// File extensions, the usual one first.
            pub const fn extensions(self) -> &'static [&'static str] {
                match self { $(Self::$format => &$extensions,)* }
            }

            pub const fn imports(self) -> bool {
                match self { $(Self::$format => $import,)* }
            }

            pub const fn media_type(self) -> &'static str {
                match self { $(Self::$format => $media,)* }
            }

            /// A short description for help texts.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$format => $doc,)* }
            }
        }
    };
}

/// Of what is shown as bytes, and as text.
const BYTES: &str = "application/octet-stream";
const TEXT: &str = "text/plain; charset=utf-8";

formats! {
    Har "har" ["har", "har.gz", "zhar"] true "application/json" "HAR 1.2, as browsers and proxies read it.";
    Jsonl "jsonl" ["jsonl", "ndjson", "jsonl.gz"] true "application/x-ndjson"
        "One flow to a line, with everything that is known of it.";
    Saz "saz" ["saz"] true "application/zip" "Fiddler's archive.";
    Fxzy "fxzy" ["fxzy", "fzy", "fluxzy"] true "application/zip" "Fluxzy's archive.";
    Mitm "mitm" ["mitm", "flow", "flows"] true BYTES "mitmproxy's flow file.";
    Pcapng "pcapng" ["pcapng"] false "application/x-pcapng"
        "Packets with the secrets that decrypt them, for Wireshark.";
    Parquet "parquet" ["parquet"] false "application/vnd.apache.parquet"
        "A table of flows for DuckDB, pandas, Polars and the like.";
    Curl "curl" ["sh"] false TEXT "curl command lines.";
    Httpie "httpie" ["sh"] false TEXT "HTTPie command lines.";
    Fetch "fetch" ["js"] false TEXT "JavaScript with fetch.";
    Python "python" ["py"] false TEXT "Python with requests.";
    Go "go" ["go"] false TEXT "Go with net/http.";
    Java "java" ["java"] false TEXT "Java with its HttpClient.";
    CSharp "csharp" ["cs"] false TEXT "C# with HttpClient.";
    Php "php" ["php"] false TEXT "PHP with its curl extension.";
    PowerShell "powershell" ["ps1"] false TEXT "PowerShell 7 with Invoke-WebRequest.";
    Rust "rust" ["rs"] false TEXT "Rust with reqwest.";
    Raw "raw" ["http"] false BYTES "Requests and responses as bytes.";
    RawRequest "raw-request" ["http"] false BYTES "Requests as bytes.";
    RawResponse "raw-response" ["http"] false BYTES "Responses as bytes.";
    Html "html" ["html", "htm"] false "text/html; charset=utf-8" "One page to share, without any external resources.";
    Table "table" ["txt"] false TEXT "A line for each flow, for people.";
}

impl ArchiveFormat {
    /// What files of this format have of a flow; `bodies` is [`ExportOptions::bodies`].
    pub const fn parts(self, bodies: bool) -> FlowParts {
        match self {
            Self::Parquet if bodies => FlowParts::Bodies,
            Self::Parquet | Self::Table => FlowParts::Row,
            _ => FlowParts::All,
        }
    }

    /// Whether it is unsuitable for a terminal.
    pub fn is_binary(self) -> bool {
        let media_type = self.media_type();
        !media_type.starts_with("text/") && !media_type.ends_with("json")
    }

    /// By file name extension, in any case. The dot must be there: `har` alone is a name.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let ends = |e: &&&str| name.strip_suffix(**e).is_some_and(|rest| rest.ends_with('.'));
        Self::ALL.iter().copied().find(|f| f.extensions().iter().any(|e| ends(&e)))
    }
}

impl fmt::Display for ArchiveFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown format name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format '{name}': choose one of {}", ArchiveFormat::ALL.iter().map(|f| f.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownFormat {
    name: String,
}

impl FromStr for ArchiveFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let format = Self::ALL.iter().copied().find(|f| f.name().eq_ignore_ascii_case(name));
        format.ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

/// Writes flows in one format. Flows are written in the order of the calls; the file is complete only after
/// [`finish`](Self::finish).
///
/// ```
/// use std::io;
///
/// use interflow_archive::{BodySource, FlowExporter};
/// use interflow_store::FlowRecord;
///
/// struct Urls<W>(W);
///
/// impl<W: io::Write> FlowExporter for Urls<W> {
///     fn flow(&mut self, row: &FlowRecord, _: &dyn BodySource) -> io::Result<()> {
///         writeln!(self.0, "{}", row.url())
///     }
///
///     fn finish(&mut self) -> io::Result<()> {
///         self.0.flush()
///     }
/// }
/// ```
pub trait FlowExporter {
    /// Writes one flow.
    ///
    /// # Errors
    /// Its bytes cannot be read, or the file cannot be written.
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()>;

    /// Writes the end of the file, and flushes.
    ///
    /// # Errors
    /// The file cannot be written.
    fn finish(&mut self) -> io::Result<()>;
}

/// Starts a file of this format. Call [`FlowExporter::finish`] at its end.
///
/// # Errors
/// The file cannot be written.
pub fn exporter<'w>(format: ArchiveFormat, out: impl Write + 'w) -> io::Result<Box<dyn FlowExporter + 'w>> {
    exporter_with(format, out, ExportOptions::default())
}

/// Options of individual formats, ignored by others.
#[derive(Default)]
pub struct ExportOptions<'w> {
    pub packets: pcapng::PcapngOptions<'w>,
    /// Include the received versions of edited requests and responses in JSONL.
    pub originals: bool,
    /// Include bodies in Parquet.
    pub bodies: bool,
}

/// Like [`exporter`], with options.
///
/// # Errors
/// The file cannot be written.
pub fn exporter_with<'w>(
    format: ArchiveFormat,
    out: impl Write + 'w,
    options: ExportOptions<'w>,
) -> io::Result<Box<dyn FlowExporter + 'w>> {
    if let Some(generator) = snippet::Generator::find(format) {
        return Ok(per_flow_exporter(out, |out, row, contents| generator.write(out, row, contents)));
    }
    Ok(match format {
        ArchiveFormat::Html => Box::new(page::PageWriter::new(out)?),
        ArchiveFormat::Har => Box::new(har::HarWriter::new(out)?),
        ArchiveFormat::Jsonl => Box::new(jsonl::JsonlWriter { out, originals: options.originals }),
        ArchiveFormat::Saz => Box::new(saz::SazWriter::new(out)?),
        ArchiveFormat::Fxzy => Box::new(fxzy::FxzyWriter::new(out)?),
        ArchiveFormat::Mitm => per_flow_exporter(out, mitm::write),
        ArchiveFormat::Pcapng => Box::new(pcapng::PcapngWriter::new(out, options.packets)?),
        ArchiveFormat::Parquet => Box::new(parquet::ParquetWriter::new(out, options.bodies)?),
        ArchiveFormat::Raw => per_flow_exporter(out, raw::write),
        ArchiveFormat::RawRequest => per_flow_exporter(out, raw::write_request),
        ArchiveFormat::RawResponse => {
            per_flow_exporter(out, |out, row, contents| raw::write_side(out, row, contents, Direction::Response))
        }
        // The table, and the code that the generators above write.
        _ => per_flow_exporter(out, |out, row, _| text::line(out, row)),
    })
}

/// A WebSocket over HTTP/2 (RFC 8441) as one over HTTP/1.1, for formats without a place for its `:protocol`.
fn as_upgrade(row: &FlowRecord) -> Cow<'_, FlowRecord> {
    let mut row = Cow::Borrowed(row);
    if row.request.as_ref().is_some_and(|r| r.method == "CONNECT" && r.protocol.is_some())
        && let Some(request) = &mut row.to_mut().request
    {
        request.method = "GET".to_owned();
        request.headers.append_unchecked(b"Connection", b"Upgrade");
        request.headers.append_unchecked(b"Upgrade", request.protocol.as_deref().unwrap_or_default().as_bytes());
    }
    row
}

/// Formats that are plain sequences of flows.
struct PerFlowExporter<W, F> {
    out: W,
    write: F,
}

fn per_flow_exporter<'w, W: Write + 'w>(
    out: W,
    write: impl Fn(&mut dyn Write, &FlowRecord, &dyn BodySource) -> io::Result<()> + 'w,
) -> Box<dyn FlowExporter + 'w> {
    Box::new(PerFlowExporter { out, write })
}

impl<W, F> FlowExporter for PerFlowExporter<W, F>
where
    W: Write,
    F: Fn(&mut dyn Write, &FlowRecord, &dyn BodySource) -> io::Result<()>,
{
    fn flow(&mut self, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
        (self.write)(&mut self.out, row, contents)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Flows that the sink accepted.
    pub flows: u64,
    /// What was left out, whole entries or parts of them, with location and reason; at most [`MAX_SKIPS`].
    pub skipped: Vec<String>,
    /// How many entries were skipped as a whole, including those without a listed reason.
    pub skips: u64,
}

/// Maximum number of skip reasons in a report.
pub const MAX_SKIPS: usize = 50;

impl ImportReport {
    /// An entry was skipped.
    pub(crate) fn skip(&mut self, reason: String) {
        self.skips += 1;
        self.note(reason);
    }

    /// A part of an entry was left out.
    pub(crate) fn note(&mut self, reason: String) {
        if self.skipped.len() < MAX_SKIPS {
            self.skipped.push(reason);
        }
    }
}

pub type Result<T, E = ImportError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file is not of this format, or truncated.
    #[error("{place}: {problem}{}", progress_before_error(report))]
    Malformed {
        /// Line and column, and the path within the document if applicable.
        place: String,
        /// What is wrong, and what was expected.
        problem: String,
        /// What was imported before.
        report: ImportReport,
    },
    /// The file cannot be read, or a flow cannot be stored.
    #[error("{source}{}", progress_before_error(report))]
    Io {
        /// The cause.
        #[source]
        source: io::Error,
        /// What was imported before.
        report: ImportReport,
    },
}

impl ImportError {
    /// The error, after so many flows that are stored.
    pub const fn after(mut self, flows: u64) -> Self {
        let (Self::Malformed { report, .. } | Self::Io { report, .. }) = &mut self;
        report.flows = flows;
        self
    }
}

fn progress_before_error(report: &ImportReport) -> String {
    match report.flows {
        0 => String::new(),
        1 => " (1 flow before it was imported)".to_owned(),
        n => format!(" ({n} flows before it were imported)"),
    }
}

/// Receives the flows of an import, one by one. An error ends the import.
pub type FlowSink<'s> = &'s mut dyn FnMut(FlowWithBodies) -> io::Result<()>;

/// Imports an archive, compressed (gzip, zlib) or not. Without a format, it is detected from the first bytes.
///
/// # Errors
/// The file is malformed or cannot be read; the error reports what was imported before.
pub fn import(format: Option<ArchiveFormat>, file: impl Read, sink: FlowSink<'_>) -> Result<ImportReport> {
    let failed = |source| ImportError::Io { source, report: ImportReport::default() };
    let mut file = BufReader::with_capacity(64 * 1024, file);
    let plain: Box<dyn BufRead + '_> = match file.fill_buf().map_err(failed)? {
        // A gzip file may consist of several members (RFC 1952 section 2.2).
        [0x1f, 0x8b, ..] => Box::new(Unpacked::reader(file, flate2::read::MultiGzDecoder::new)),
        [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Box::new(Unpacked::reader(file, flate2::read::ZlibDecoder::new)),
        _ => Box::new(file),
    };
    let mut plain = plain;
    // A byte order mark, which tools on Windows write before JSON.
    if plain.fill_buf().map_err(failed)?.starts_with(b"\xef\xbb\xbf") {
        plain.consume(3);
    }
    let head = plain.fill_buf().map_err(failed)?;
    let format = match format {
        Some(ArchiveFormat::Saz | ArchiveFormat::Fxzy) | None if head.starts_with(b"PK") => {
            return import_zip(plain, format, sink);
        }
        Some(format) => format,
        None => detect(head).ok_or_else(|| {
            malformed(format!("this is not a file of recorded flows; import one of {}", importable_formats()))
        })?,
    };
    match format {
        ArchiveFormat::Jsonl => jsonl::import(plain, sink),
        ArchiveFormat::Har => har::import(plain, sink),
        ArchiveFormat::Mitm => mitm::import(plain, sink),
        ArchiveFormat::Saz | ArchiveFormat::Fxzy => {
            Err(malformed(format!("this is not a '{format}' file: it is not a zip")))
        }
        other => Err(malformed(format!(
            "the format '{other}' can be exported but not imported; import one of {}",
            importable_formats()
        ))),
    }
}

fn malformed(problem: String) -> ImportError {
    ImportError::Malformed { place: "the file".to_owned(), problem, report: ImportReport::default() }
}

fn importable_formats() -> String {
    ArchiveFormat::ALL.iter().filter(|f| f.imports()).map(|f| f.name()).collect::<Vec<_>>().join(", ")
}

/// A zip is read from its end, so it is copied to an unnamed temporary file first.
fn import_zip(mut file: impl Read, format: Option<ArchiveFormat>, sink: FlowSink<'_>) -> Result<ImportReport> {
    let failed = |source| ImportError::Io { source, report: ImportReport::default() };
    let mut spool = tempfile::tempfile().map_err(failed)?;
    io::copy(&mut file, &mut spool).map_err(failed)?;
    spool.rewind().map_err(failed)?;
    let zip = zip::ZipReader::open(spool).map_err(|e| match e.kind() {
        io::ErrorKind::InvalidData => malformed(e.to_string()),
        _ => failed(e),
    })?;
    let holds = |folder: &str| zip.entries.iter().any(|e| e.name.starts_with(folder));
    match format {
        Some(ArchiveFormat::Saz) => saz::import(zip, sink),
        Some(_) => fxzy::import(zip, sink),
        None if holds("raw/") => saz::import(zip, sink),
        None if holds("exchanges/") => fxzy::import(zip, sink),
        None => Err(malformed(
            "this zip holds neither sessions of Fiddler (raw/) nor exchanges of Fluxzy (exchanges/)".to_owned(),
        )),
    }
}

/// mitmproxy files begin with a length, JSONL with Interflow's marker; every other JSON object is assumed to be HAR.
/// Packet captures and Parquet begin with marks of their own.
fn detect(head: &[u8]) -> Option<ArchiveFormat> {
    let marks = [("\n\r\r\n", ArchiveFormat::Pcapng), ("PAR1", ArchiveFormat::Parquet)];
    if let Some((_, format)) = marks.into_iter().find(|(mark, _)| head.starts_with(mark.as_bytes())) {
        return Some(format);
    }
    let digits = head.iter().take_while(|b| b.is_ascii_digit()).count();
    // A tnetstring of the largest size has twelve digits at most.
    if (1..=12).contains(&digits) && head.get(digits) == Some(&b':') {
        return Some(ArchiveFormat::Mitm);
    }
    // Whitespace before or within the beginning does not matter in JSON.
    let head: Vec<u8> = head.iter().copied().filter(|b| !b.is_ascii_whitespace()).take(12).collect();
    match head.starts_with(b"{\"interflow\"") {
        true => Some(ArchiveFormat::Jsonl),
        false => head.starts_with(b"{").then_some(ArchiveFormat::Har),
    }
}
