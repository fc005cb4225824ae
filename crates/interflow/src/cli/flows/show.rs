//! `interflow flows show`.

use std::io::{self, Write};

use interflow_archive::text::{self, TextStyle, duration};
use interflow_archive::view::ProtoSchemas;
use interflow_archive::{self, BodySource, OriginalBodySource, StoreBodySource};
use interflow_store::{FlowRecord, FlowStore, decoded_body};
use interflow_types::{Attempt, Direction, FlowTimings, Headers};

use super::{FlowShowArgs, ShowFormat, open};
use crate::cli::output::{ignore_broken_pipe, print_json};
use crate::{CliError, Result};

/// Maximum bytes of a body to decode.
const MAX_DECODED: usize = 1 << 30;

/// Prints a flow.
pub fn show(store: &dyn FlowStore, args: &FlowShowArgs, schemas: &ProtoSchemas) -> Result<()> {
    let mut flow = open::find(store, &args.id)?;
    if args.original {
        if flow.original.is_none() {
            let why = "it was not edited, or the original was not recorded (see docs/guides/recording.md)";
            return Err(CliError::Failed(format!("flow {} has no original: {why}", flow.id)));
        }
        flow = flow.original_view();
    }
    if let Some(side) = args.body {
        return body(store, &flow, side, args);
    }
    let (sent, came) = (StoreBodySource(store), OriginalBodySource(store));
    let contents: &dyn BodySource = if args.original { &came } else { &sent };
    match args.format.get() {
        ShowFormat::Archive(format) => {
            let mut out = interflow_host::terminal::data_stdout();
            let mut print = || {
                let mut exporter = interflow_archive::exporter(format, &mut out)?;
                exporter.flow(&flow, contents)?;
                exporter.finish()
            };
            ignore_broken_pipe(print())
        }
        ShowFormat::Json => print_json(&flow),
        ShowFormat::Text => {
            let mut out = interflow_host::terminal::stdout();
            let written = text::detail(&mut out, &flow, contents, (args.max_body, schemas), TextStyle { colour: true });
            ignore_broken_pipe(written.and_then(|()| write_connections(&mut out, &flow)))
        }
    }
}

fn body(store: &dyn FlowStore, flow: &FlowRecord, side: Direction, args: &FlowShowArgs) -> Result<()> {
    let Some(known) = flow.body(side) else {
        return Err(CliError::Failed(format!("flow {} has no {}", flow.id, side.as_str())));
    };
    if let Some(why) = known.missing_explanation() {
        interflow_host::errln!("interflow: {} of {} bytes were kept ({why})", known.kept, known.size);
    }
    let mut out = interflow_host::terminal::data_stdout();
    let mut reader = match args.original {
        true => store.original_body(flow.id, side, 0..known.kept)?,
        false => store.body(flow.id, side, 0..known.kept)?,
    };
    if !args.decoded {
        return ignore_broken_pipe(io::copy(&mut reader, &mut out).map(drop));
    }
    let empty = Headers::new();
    let decoded =
        decoded_body::decode_body(flow.headers(side).unwrap_or(&empty), reader.read_all(usize::MAX)?, MAX_DECODED);
    ignore_broken_pipe(out.write_all(&decoded.bytes).and_then(|()| out.flush()))?;
    match (decoded.error, decoded.truncated) {
        (Some(error), _) => Err(CliError::Failed(format!("the body could not be decoded to its end: {error}"))),
        (None, true) => Err(CliError::Failed(format!("the body was cut after {MAX_DECODED} bytes"))),
        (None, false) => Ok(()),
    }
}

/// Prints details of both connections and the timings.
fn write_connections(out: &mut impl Write, flow: &FlowRecord) -> io::Result<()> {
    let dim = anstyle::Style::new().dimmed();
    writeln!(out)?;
    let mut line = |name: &str, words: Vec<String>| {
        if words.is_empty() { Ok(()) } else { writeln!(out, "{dim}{name:<9}{dim:#} {}", words.join(", ")) }
    };
    line("client", client_lines(flow))?;
    line("upstream", upstream_lines(flow))?;
    for (number, attempt) in (1..).zip(&flow.attempts) {
        line(&format!("attempt {number}"), attempt_words(attempt))?;
    }
    line("edited", edited_lines(flow))?;
    line("timing", timing_lines(&flow.timings))
}

pub fn client_lines(flow: &FlowRecord) -> Vec<String> {
    let mut words: Vec<String> = flow.client.peer.iter().map(|p| format!("{p}")).collect();
    words.extend((!flow.client.listener.is_empty()).then(|| format!("listener {}", flow.client.listener)));
    words.extend(flow.client.container.iter().map(|c| format!("container {}", c.escape_default())));
    words.extend(flow.client.process.iter().map(|p| format!("process {} ({})", p.name.escape_default(), p.pid)));
    words.extend(flow.client.http2.iter().map(|f| format!("HTTP/2 {}", f.escape_default())));
    words.extend(flow.client.ja4h.iter().map(|f| format!("JA4H {}", f.escape_default())));
    if let Some(tls) = &flow.client.tls {
        words.extend(tls.version.iter().map(|v| v.to_string()));
        words.extend(tls.cipher.iter().cloned());
        words.extend(tls.alpn.iter().map(|a| format!("ALPN {}", a.escape_default())));
        words.extend(tls.sni.iter().map(|s| format!("SNI {}", s.escape_default())));
        words.extend(tls.ja4.iter().map(|j| format!("JA4 {}", j.escape_default())));
    }
    words
}

/// Prints the edits made to the flow.
pub fn edited_lines(flow: &FlowRecord) -> Vec<String> {
    let Some(original) = &flow.original else { return Vec::new() };
    let edited = [Direction::Request, Direction::Response].into_iter().filter(|side| flow.is_edited(*side));
    let word = |side: Direction| {
        let body = if original.edited_body(side).is_some() { " with its body" } else { "" };
        format!("the {}{body}", side.as_str())
    };
    edited.map(word).chain(["`--original` shows what came in".to_owned()]).collect()
}

pub fn upstream_lines(flow: &FlowRecord) -> Vec<String> {
    let Some(upstream) = &flow.upstream else { return Vec::new() };
    let mut words: Vec<String> = upstream.peer.iter().map(|p| format!("{p}")).collect();
    words.extend(upstream.via.iter().map(|v| format!("via {v}")));
    words.push(upstream.version.to_string());
    words.extend(upstream.reused.then(|| "connection reused".to_owned()));
    if let Some(tls) = &upstream.tls {
        words.extend(tls.version.iter().map(|v| v.to_string()));
        words.extend(tls.cipher.iter().cloned());
        words.extend(tls.alpn.iter().map(|a| format!("ALPN {}", a.escape_default())));
        words.extend(tls.fingerprint.iter().map(|f| format!("fingerprint {}", f.escape_default())));
        words.extend(tls.resumed.then(|| "session resumed".to_owned()));
        words.extend(tls.unverified.then(|| "certificate NOT verified".to_owned()));
        words.extend(tls.problem.iter().map(|p| p.escape_default().to_string()));
    }
    words
}

/// Where a gateway sent the request, what became of it, and what it cost.
pub fn attempt_words(attempt: &Attempt) -> Vec<String> {
    let mut words = vec![attempt.deployment.escape_default().to_string(), attempt.state.as_str().to_owned()];
    words.extend(attempt.hedge.then(|| "hedge".to_owned()));
    words.extend(attempt.status.map(|status| status.to_string()));
    words.extend(attempt.error.map(|kind| kind.as_str().to_owned()));
    words.extend(attempt.message.as_deref().map(|message| message.escape_default().to_string()));
    words.push(format!("{}{}", attempt.host.escape_default(), attempt.path.escape_default()));
    words.push(format!("sent at {}", duration(attempt.started)));
    words.extend(attempt.first_byte.map(|at| format!("first byte at {}", duration(at))));
    words.extend(attempt.ended.map(|at| format!("ended at {}", duration(at))));
    let about = if attempt.estimated { "about " } else { "" };
    words.extend(
        attempt
            .input_tokens
            .map(|input| format!("{about}{input} tokens in, {} out", attempt.output_tokens.unwrap_or_default())),
    );
    words.extend(attempt.cost.map(|micros| format!("${:.6}", micros as f64 / 1e6)));
    words
}

/// Durations first (`dns 2 ms`), then offsets from the start (`first byte at 40 ms`).
fn timing_lines(t: &FlowTimings) -> Vec<String> {
    let lengths = [("waited", t.blocked), ("dns", t.dns), ("connect", t.connect), ("tls", t.tls)];
    let moments = [
        ("request complete at", t.request_body),
        ("sent at", t.request_sent),
        ("first byte at", t.first_byte),
        ("last byte at", t.last_byte),
        ("done at", t.done),
    ];
    lengths.into_iter().chain(moments).filter_map(|(name, t)| Some(format!("{name} {}", duration(t?)))).collect()
}
