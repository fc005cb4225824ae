//! The record as rows (SQLite, as today) beside a log whose closed parts become Parquet blocks: `record_blocks FOLDER FLOWS
//! [BODY_BYTES] [--json FILE]`. Both hold the same flows; each query must have the same number of hits in both.
//!
//! Times are CPU time of the thread that works, so that other work on the machine changes them little.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use interflow_query::Query;
use interflow_store::stored_form::details_blob;
use interflow_store::{FlowRecord, FlowStore, ListOptions, ListOrder, RecordConfig, SqliteStore};
use interflow_testkit::cpu;
use interflow_types::{
    ByteStr, ClientInfo, Direction, EntryKind, Flow, FlowId, FlowOutcome, Headers, HttpVersion, Method, Recorder,
    RequestHead, ResponseHead, Scheme, StatusCode, Url,
};
use parquet::basic::{Compression, Repetition, Type as Physical, ZstdLevel};
use parquet::bloom_filter::Sbbf;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FixedLenByteArrayType, Int64Type};
use parquet::file::properties::{ReaderProperties, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Flows of a block, and of a row group in it.
const BLOCK: usize = 128 << 10;
const GROUP: usize = 16 << 10;
/// Flows between two syncs of the log, as the writer's batches are.
const BATCH: usize = 500;

/// A small deterministic generator: every run records the same flows.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Small numbers far more often than large ones.
    fn skewed(&mut self, n: u64) -> u64 {
        let limit = self.below(n) + 1;
        self.below(limit)
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = PathBuf::from(args.first().ok_or("the folder")?);
    let flows: usize = args.get(1).ok_or("how many flows")?.parse()?;
    let body: usize = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut report = serde_json::Map::new();
    let mut put = |name: &str, value: f64| {
        println!("{name:<44} {value:>14.3}");
        report.insert(name.to_owned(), ((value * 1000.0).round() / 1000.0).into());
    };
    put("flows", flows as f64);
    put("body bytes", body as f64);
    let rows = dir.join("rows");
    fs::create_dir_all(&rows)?;
    let record = record_rows(&rows, flows, body)?;
    let store = SqliteStore::open_read(&rows)?;
    let stats = store.stats()?;
    let per_flow = |n: u64| n as f64 / flows as f64;
    put("rows: worker, CPU us per flow", per_flow(record.0) / 1e3);
    put("rows: writer, CPU us per flow", per_flow(record.1) / 1e3);
    put("rows: database, bytes per flow", per_flow(stats.database_bytes));
    put("rows: segments, bytes per flow", per_flow(stats.segment_bytes));

    let blocks = Blocks { dir: dir.join("blocks") };
    let (log, block) = blocks.write(&store, flows)?;
    put("blocks: log, CPU us per flow", per_flow(log.0) / 1e3);
    put("blocks: log, bytes per flow", per_flow(log.1));
    put("blocks: closing, CPU us per flow", per_flow(block) / 1e3);
    put("blocks: files, bytes per flow", per_flow(blocks.bytes()?));

    let (took, store) = timed(|| Ok(SqliteStore::open_read(&rows)?))?;
    put("rows: open, ms", took);
    let (took, opened) = timed(|| blocks.open())?;
    put("blocks: open, ms", took);
    let rare = format!("/v5/items/{}", flows / 2);
    let queries = [
        ("newest 100", Filter::All, String::new()),
        ("rare host", Filter::Host("host-299.example.com"), "host:host-299.example.com".to_owned()),
        ("frequent host", Filter::Host("host-0.example.com"), "host:host-0.example.com".to_owned()),
        ("status 503", Filter::Status(503), "status:503".to_owned()),
        ("rare path", Filter::Path(&rare), format!("path:{rare}")),
        ("rare word of a URL", Filter::Word("needle"), "url:needle".to_owned()),
        ("word of no URL", Filter::Word("haystacks"), "url:haystacks".to_owned()),
    ];
    for (name, filter, query) in &queries {
        let query = Query::parse(query)?;
        let (took, left) = timed(|| Ok(store.list(&ListOptions { query: query.clone(), ..ListOptions::default() })?))?;
        put(&format!("rows: {name}, ms"), took);
        let (took, right) = timed(|| opened.list(filter, 100))?;
        put(&format!("blocks: {name}, ms"), took);
        put(&format!("hits: {name}"), left.len() as f64);
        let ids = |list: &[FlowRecord]| list.iter().map(|flow| flow.id).collect::<Vec<_>>();
        if ids(&left) != right {
            return Err(format!("{name}: {} rows, {} in blocks", left.len(), right.len()).into());
        }
    }
    let (took, left) = timed(|| Ok(store.count(&Query::parse("status:503")?)?))?;
    put("rows: count of a status, ms", took);
    let (took, right) = timed(|| opened.count_status(503))?;
    put("blocks: count of a status, ms", took);
    if left != right {
        return Err(format!("count: {left} rows, {right} in blocks").into());
    }
    put("peak memory, MiB", peak_memory()?);
    if let Some(at) = args.iter().position(|arg| arg == "--json") {
        let file = args.get(at + 1).ok_or("--json FILE")?;
        fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}

/// Milliseconds of CPU time that a piece of work takes, and its result. It is repeated, since the clock may be coarse.
fn timed<T>(mut work: impl FnMut() -> Result<T>) -> Result<(f64, T)> {
    let start = cpu::of_thread();
    let mut rounds = 0;
    loop {
        let result = work()?;
        rounds += 1;
        let took = cpu::of_thread() - start;
        if took > 200_000_000 || rounds == 1000 {
            return Ok((took as f64 / 1e6 / f64::from(rounds), result));
        }
    }
}

fn peak_memory() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
}

/// Records through the product's recorder; returns the CPU time of the worker's and the writer's thread.
fn record_rows(dir: &Path, flows: usize, body: usize) -> Result<(u64, u64)> {
    let store = SqliteStore::open(dir, &RecordConfig::default())?;
    let recorder = store.recorder().ok_or("the store is open for reading only")?;
    let client = interflow_testkit::client_info();
    let mut dice = Dice(7);
    let (mut worker, writer) = (0, cpu::of_threads("self", "recorder"));
    for i in 0..flows {
        let made = exchange(&client, &mut dice, i, body)?;
        let start = cpu::of_thread();
        record(&recorder, made);
        worker += cpu::of_thread() - start;
        if i % 5_000 == 4_999 {
            store.flush()?;
        }
    }
    store.flush()?;
    Ok((worker, cpu::of_threads("self", "recorder") - writer))
}

type Exchange = (Flow, RequestHead, ResponseHead, Bytes);

fn exchange(client: &Arc<ClientInfo>, dice: &mut Dice, i: usize, body: usize) -> Result<Exchange> {
    let host = format!("host-{}.example.com:443", dice.skewed(300));
    let mut flow = Flow::begin(Arc::clone(client), EntryKind::Connect, Scheme::Https, host.parse()?);
    flow.user = Some(format!("user-{}", dice.skewed(60)).into());
    let path = match dice.below(6) {
        0 => "/".to_owned(),
        1 => format!("/assets/app.{:08x}.js", dice.below(1 << 32)),
        n if dice.below(100_000) == 0 => format!("/v{n}/needle/{i}"),
        _ => format!("/v5/items/{i}"),
    };
    let headers: Headers = [
        ("Host", host.as_str()),
        ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0"),
        ("Accept", "application/json, text/plain, */*"),
        ("Accept-Encoding", "gzip, deflate, br, zstd"),
        ("Accept-Language", "en-GB,en;q=0.8"),
        ("Authorization", "Bearer sk-0123456789012345678901234567890123456789"),
        ("Traceparent", &format!("00-{:016x}{:016x}-{:016x}-01", dice.below(1 << 62), dice.below(1 << 62), i)),
    ]
    .into_iter()
    .collect();
    let head = RequestHead {
        method: if dice.below(5) == 0 { Method::POST } else { Method::GET },
        url: Url { scheme: flow.scheme, authority: flow.authority.clone(), path: ByteStr::from(path) },
        version: HttpVersion::H2,
        headers,
        protocol: None,
    };
    let status =
        if dice.below(1000) == 0 { 503 } else { [200u16, 200, 200, 201, 204, 302, 304, 404][dice.below(8) as usize] };
    let mut answer = ResponseHead::new(StatusCode::try_from(status)?);
    answer.headers = [
        ("Content-Type", "application/json"),
        ("Date", "Sat, 28 Nov 2026 10:00:00 GMT"),
        ("Server", "nginx"),
        ("Cache-Control", "no-store"),
        ("Vary", "Accept-Encoding, Origin"),
        ("Strict-Transport-Security", "max-age=31536000; includeSubDomains"),
        ("X-Request-Id", &format!("{:016x}", dice.below(1 << 62))),
        ("Content-Length", &body.to_string()),
    ]
    .into_iter()
    .collect();
    // Half of it random, as text of base 64 is compressed to three quarters.
    let mut bytes = vec![b'{'; body];
    for byte in bytes.iter_mut().step_by(2) {
        *byte = b'0' + dice.below(64) as u8;
    }
    Ok((flow, head, answer, Bytes::from(bytes)))
}

fn record(recorder: &impl Recorder, (flow, head, answer, body): Exchange) {
    let Some(mut capture) = recorder.begin(&flow, Some(&head)) else { return };
    capture.response(&flow, &answer);
    if !body.is_empty() {
        capture.data(Direction::Response, &body);
    }
    capture.finish(&flow, FlowOutcome::Complete);
}

/// The log and the blocks of the prototype.
struct Blocks {
    dir: PathBuf,
}

/// What is filtered by, and one row's remainder.
#[derive(Default)]
struct Columns {
    ids: Vec<parquet::data_type::FixedLenByteArray>,
    started: Vec<i64>,
    duration: Vec<i64>,
    status: Vec<i64>,
    texts: [Vec<ByteArray>; TEXTS.len()],
    details: Vec<ByteArray>,
    words: HashSet<u64>,
}

const TEXTS: [&str; 4] = ["host", "path", "method", "user"];
const STATUS: usize = 3;
const HOST: usize = 4;
const PATH: usize = 5;

impl Blocks {
    /// Appends the flows of the store to the log, a batch at a time, and closes a part of it as a block when it is full.
    /// Returns CPU time and bytes of the log, and CPU time of the blocks.
    fn write(&self, store: &SqliteStore, flows: usize) -> Result<((u64, u64), u64)> {
        fs::create_dir_all(&self.dir)?;
        let mut log = File::create(self.dir.join("log"))?;
        let (mut log_cpu, mut log_bytes, mut block_cpu) = (0, 0, 0);
        let (mut after, mut part, mut blocks): (Option<FlowId>, Vec<FlowRecord>, usize) = (None, Vec::new(), 0);
        let mut remaining = flows;
        while remaining > 0 {
            let options = ListOptions { query: Query::all(), order: ListOrder::Oldest, after, limit: 10_000 };
            let page = store.list(&options)?;
            let Some(last) = page.last() else { return Err("flows are missing".into()) };
            (after, remaining) = (Some(last.id), remaining - page.len());
            for batch in page.chunks(BATCH) {
                let start = cpu::of_thread();
                let mut out = Vec::with_capacity(512 << 10);
                for flow in batch {
                    let text = record_bytes(flow);
                    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    out.extend_from_slice(&text);
                }
                // One frame of a batch: length, checksum, compressed records.
                let frame = zstd::bulk::compress(&out, 1)?;
                log.write_all(&(frame.len() as u32).to_le_bytes())?;
                log.write_all(&blake3::hash(&frame).as_bytes()[..8])?;
                log.write_all(&frame)?;
                log_bytes += frame.len() as u64 + 12;
                log_cpu += cpu::of_thread() - start;
            }
            part.extend(page);
            while part.len() >= BLOCK || (remaining == 0 && !part.is_empty()) {
                let rest = part.split_off(part.len().min(BLOCK));
                let start = cpu::of_thread();
                write_block(&self.dir.join(format!("{blocks:06}.parquet")), &part)?;
                block_cpu += cpu::of_thread() - start;
                (part, blocks) = (rest, blocks + 1);
            }
        }
        Ok(((log_cpu, log_bytes), block_cpu))
    }

    fn bytes(&self) -> Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name() != "log" {
                sum += entry.metadata()?.len();
            }
        }
        Ok(sum)
    }

    fn open(&self) -> Result<OpenBlocks> {
        let mut files: Vec<_> =
            fs::read_dir(&self.dir)?.map(|entry| entry.map(|e| e.path())).collect::<std::io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|e| e == "parquet"));
        files.sort();
        let options = || {
            let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
            ReadOptionsBuilder::new().with_reader_properties(properties).build()
        };
        let mut blocks = Vec::new();
        for path in files {
            let (words, mut filters) = (fs::read(path.with_extension("words"))?, Vec::new());
            let mut rest = &words[..];
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                let (filter, after) = after.split_at(u32::from_le_bytes(*length) as usize);
                filters.push(Sbbf::from_bytes(filter)?);
                rest = after;
            }
            blocks.push((SerializedFileReader::new_with_options(File::open(&path)?, options())?, filters));
        }
        Ok(OpenBlocks { blocks })
    }
}

/// A record as the log has it: what has a column, and the details.
fn record_bytes(flow: &FlowRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(1200);
    out.extend_from_slice(&flow.id.to_u128().to_le_bytes());
    out.extend_from_slice(&flow.started.micros().to_le_bytes());
    for text in texts(flow) {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&details_blob::encode(flow, Default::default()));
    out
}

fn texts(flow: &FlowRecord) -> [String; TEXTS.len()] {
    let request = flow.request.as_ref();
    [
        flow.authority.host.to_string(),
        request.map(|r| r.path.clone()).unwrap_or_default(),
        request.map(|r| r.method.clone()).unwrap_or_default(),
        flow.user.as_deref().unwrap_or_default().to_owned(),
    ]
}

/// The words of a text: runs of letters and digits, in lower case, of three characters and more.
fn words(text: &str) -> impl Iterator<Item = u64> + '_ {
    let runs = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 2);
    runs.map(|word| {
        let mut hasher = std::hash::DefaultHasher::new();
        word.bytes().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
        hasher.finish()
    })
}

fn write_block(path: &Path, flows: &[FlowRecord]) -> Result<()> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_column_dictionary_enabled(ColumnPath::from("details"), false)
        .set_column_dictionary_enabled(ColumnPath::from("id"), false);
    for name in ["host", "path", "user"] {
        properties = properties.set_column_bloom_filter_enabled(ColumnPath::from(name), true);
    }
    let mut file = SerializedFileWriter::new(File::create(path)?, Arc::new(schema()?), Arc::new(properties.build()))?;
    let mut filters = Vec::new();
    for group in flows.chunks(GROUP) {
        let mut columns = Columns::default();
        for flow in group {
            columns.ids.push(ByteArray::from(flow.id.to_u128().to_be_bytes().to_vec()).into());
            columns.started.push(flow.started.micros() as i64);
            columns.duration.push(flow.duration().unwrap_or_default() as i64);
            columns.status.push(flow.response.as_ref().map_or(0, |r| r.status.into()));
            for (column, text) in columns.texts.iter_mut().zip(texts(flow)) {
                columns.words.extend(words(&text));
                column.push(ByteArray::from(text.into_bytes()));
            }
            columns.details.push(details_blob::encode(flow, Default::default()).into());
        }
        let mut out = file.next_row_group()?;
        column::<FixedLenByteArrayType>(&mut out, &columns.ids)?;
        column::<Int64Type>(&mut out, &columns.started)?;
        column::<Int64Type>(&mut out, &columns.duration)?;
        column::<Int64Type>(&mut out, &columns.status)?;
        for text in &columns.texts {
            column::<ByteArrayType>(&mut out, text)?;
        }
        column::<ByteArrayType>(&mut out, &columns.details)?;
        out.close()?;
        let mut filter = Sbbf::new_with_ndv_fpp(columns.words.len() as u64, 0.01)?;
        columns.words.iter().for_each(|word| filter.insert(word));
        let mut bytes = Vec::new();
        filter.write(&mut bytes)?;
        filters.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        filters.extend(bytes);
    }
    file.close()?;
    fs::write(path.with_extension("words"), filters)?;
    Ok(())
}

fn schema() -> Result<Type> {
    let field = |name: &str, physical, length| {
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        builder.with_length(length).build().map(Arc::new)
    };
    let mut fields = vec![field("id", Physical::FIXED_LEN_BYTE_ARRAY, 16)?];
    for name in ["started", "duration", "status"] {
        fields.push(field(name, Physical::INT64, -1)?);
    }
    for name in TEXTS.into_iter().chain(["details"]) {
        fields.push(field(name, Physical::BYTE_ARRAY, -1)?);
    }
    Ok(Type::group_type_builder("flow").with_fields(fields).build()?)
}

fn column<T: DataType>(
    group: &mut parquet::file::writer::SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) -> Result<()> {
    let mut column = group.next_column()?.ok_or("too few columns")?;
    column.typed::<T>().write_batch(values, None, None)?;
    Ok(column.close()?)
}

enum Filter<'a> {
    All,
    Host(&'a str),
    Status(i64),
    Path(&'a str),
    /// A word of the URL.
    Word(&'a str),
}

struct OpenBlocks {
    blocks: Vec<(SerializedFileReader<File>, Vec<Sbbf>)>,
}

impl OpenBlocks {
    /// The newest flows that fit, with their details.
    fn list(&self, filter: &Filter<'_>, limit: usize) -> Result<Vec<FlowId>> {
        let mut hits = Vec::new();
        for (file, words) in self.blocks.iter().rev() {
            for at in (0..file.num_row_groups()).rev() {
                let group = file.get_row_group(at)?;
                let mut rows = fitting(&*group, &words[at], filter)?;
                rows.reverse();
                rows.truncate(limit - hits.len());
                if rows.is_empty() {
                    continue;
                }
                let (ids, details) = (read::<FixedLenByteArrayType>(&*group, 0)?, read::<ByteArrayType>(&*group, 8)?);
                for row in rows {
                    let id = <[u8; 16]>::try_from(ids[row].data())?;
                    let mut flow: FlowRecord = serde_json::from_str(EMPTY)?;
                    details_blob::decode(details[row].data(), &mut flow)?;
                    hits.push(FlowId::from_u128(u128::from_be_bytes(id)));
                }
                if hits.len() == limit {
                    return Ok(hits);
                }
            }
        }
        Ok(hits)
    }

    fn count_status(&self, status: i64) -> Result<u64> {
        let mut count = 0;
        for (file, words) in &self.blocks {
            for (at, words) in words.iter().enumerate() {
                count += fitting(&*file.get_row_group(at)?, words, &Filter::Status(status))?.len() as u64;
            }
        }
        Ok(count)
    }
}

/// The rows of a group that fit, the oldest first.
fn fitting(group: &dyn RowGroupReader, words: &Sbbf, filter: &Filter<'_>) -> Result<Vec<usize>> {
    let has = |column: usize, text: &str| group.get_column_bloom_filter(column).is_none_or(|bloom| bloom.check(text));
    let rows = group.metadata().num_rows() as usize;
    let by_text = |column: usize, fits: &dyn Fn(&[u8]) -> bool| -> Result<Vec<usize>> {
        let values = read::<ByteArrayType>(group, column)?;
        Ok(values.iter().enumerate().filter(|(_, value)| fits(value.data())).map(|(row, _)| row).collect())
    };
    match filter {
        Filter::All => Ok((0..rows).collect()),
        Filter::Status(status) => {
            let values = read::<Int64Type>(group, STATUS)?;
            Ok(values.iter().enumerate().filter(|(_, value)| *value == status).map(|(row, _)| row).collect())
        }
        Filter::Host(host) if !has(HOST, host) => Ok(Vec::new()),
        Filter::Host(host) => by_text(HOST, &|value| value == host.as_bytes()),
        Filter::Path(path) if !has(PATH, path) => Ok(Vec::new()),
        Filter::Path(path) => by_text(PATH, &|value| value == path.as_bytes()),
        Filter::Word(word) if !self::words(word).all(|hash| words.check(&hash)) => Ok(Vec::new()),
        Filter::Word(word) => by_text(PATH, &|value| memchr::memmem::find(value, word.as_bytes()).is_some()),
    }
}

fn read<T: DataType>(group: &dyn RowGroupReader, column: usize) -> Result<Vec<T::T>> {
    let mut reader = parquet::column::reader::get_typed_column_reader::<T>(group.get_column_reader(column)?);
    let (rows, mut values) = (group.metadata().num_rows() as usize, Vec::new());
    while values.len() < rows {
        let (read, ..) = reader.read_records(rows - values.len(), None, None, &mut values)?;
        if read == 0 {
            return Err("a column is too short".into());
        }
    }
    Ok(values)
}

/// What `details_blob::decode` fills in.
const EMPTY: &str = r#"{"id":"00000000000000000000000000","state":"complete","kind":"http","started":0,"transport":"connect","scheme":"https","authority":"a:443","client":{"connection":0,"peer":null,"local":null,"listener":"","accepted":0},"request":{"method":"GET","path":"/","version":"HTTP/2","headers":[]},"response":{"status":200,"version":"HTTP/2","headers":[]},"timings":{}}"#;
