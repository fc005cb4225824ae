//! Instruction counts of the hot paths under callgrind: a deterministic regression gate.
//!
//! Each case runs in a process of its own, warmed up outside the counted function, and its count per round is compared with the
//! committed one. Whole requests are counted in the shipped binary ([`request_path`]).

mod request_path;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use bytes::{Bytes, BytesMut};
use interflow_codec::client_hello::ClientHello;
use interflow_codec::h1::{
    BodyDecoder, BodyFraming, DecodeStep, HeadLimits, parse_request, parse_response, request_framing, response_framing,
    write_request_head, write_response_head,
};
use interflow_codec::sse::SseParser;
use interflow_net::ca::CertificateAuthority;
use interflow_net::tls::Alpn;
use interflow_redact::{RedactionSession, Redactor};
use interflow_types::{Host, Method};

use crate::{Result, rule_cases};

/// Allowed excess over a case's committed count.
const TOLERANCE: f64 = 0.05;

const REQUEST: &[u8] = b"POST http://api.example.com/v1/messages?beta=true HTTP/1.1\r\nHost: api.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0\r\nAccept: application/json\r\n\
    Accept-Encoding: gzip, deflate, br\r\nAuthorization: Bearer sk-0123456789abcdef0123456789abcdef\r\n\
    Content-Type: application/json\r\nContent-Length: 1024\r\nConnection: keep-alive\r\n\r\n";

const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 10:00:00 GMT\r\nContent-Type: text/event-stream\r\n\
    Server: nginx\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\nrequest-id: req_0123456789\r\n\
    Strict-Transport-Security: max-age=31536000\r\nVary: Accept-Encoding\r\n\r\n";

/// The ClientHello of RFC 8448 section 3, in its record.
const CLIENT_HELLO: &str = "\
    16030100c4010000c00303cb34ecb1e78163ba1c38c6dacb196a6dffa21a8d9912ec18a2ef6283024dece7000006130113031302010000\
    910000000b0009000006736572766572ff01000100000a00140012001d0017001800190100010101020103010400230000003300260024\
    001d002099381de560e4bd43d23d8e435a7dbafeb3c06e51c13cae4d5413691e529aaf2c002b0003020304000d0020001e040305030603\
    020308040805080604010501060102010402050206020202002d00020101001c00024001";

/// One round of a case; what it needs is made before.
type Round = Box<dyn FnMut()>;
/// Name, rounds counted, and how to make it.
type Case = (&'static str, u32, fn() -> Result<Round>);

const CASES: [Case; 13] = [
    ("parse-request-head", 1000, parse_request_head),
    ("parse-response-head", 1000, parse_response_head),
    ("write-request-head", 1000, write_request),
    ("write-response-head", 1000, write_response),
    ("decode-8-KiB-in-8-chunks", 1000, decode_chunks),
    ("sse-event", 1000, sse_event),
    ("client-hello-with-ja4", 1000, client_hello),
    ("mint-leaf", 20, mint_leaf),
    ("rule-match-none", 1000, rule_cases::none),
    ("rule-match-20", 1000, rule_cases::twenty),
    ("rule-match-1000-hosts", 1000, rule_cases::thousand_hosts),
    ("rule-match-header", 1000, rule_cases::header),
    ("redact-2-KB", 20, redact_prompt),
];

/// Runs one case, its rounds inside the function that callgrind watches.
///
/// # Errors
/// When there is no such case.
pub fn run_case(name: &str) -> Result<()> {
    let case = CASES.iter().find(|(n, ..)| *n == name).ok_or_else(|| format!("no case {name:?}"))?;
    let mut round = case.2()?;
    (0..10).for_each(|_| round());
    counted_rounds(&mut *round, case.1);
    Ok(())
}

/// The one function whose instructions are counted.
#[inline(never)]
fn counted_rounds(round: &mut dyn FnMut(), rounds: u32) {
    (0..rounds).for_each(|_| round());
}

/// Counts every case whose name holds `only` and compares with the committed file, or writes their counts anew.
///
/// # Errors
/// When a case costs more than 5 % above its committed count, or has none.
pub fn check(committed: &Path, update: bool, only: &str) -> Result<()> {
    let mut counts = BTreeMap::new();
    for (name, rounds, _) in CASES.into_iter().filter(|(name, ..)| name.contains(only)) {
        counts.insert(name.to_owned(), count(name)? / u64::from(rounds));
    }
    for path in request_path::PATHS.iter().filter(|r| r.name.contains(only)) {
        counts.insert(path.name.to_owned(), path.count()?);
    }
    let old: BTreeMap<String, u64> = match fs::read_to_string(committed) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => BTreeMap::new(),
    };
    let mut worse = Vec::new();
    for (name, now) in &counts {
        let before = old.get(name).copied();
        println!("{}", verdict(name, *now, before));
        if before.is_none_or(|b| exceeds(*now, b)) {
            worse.push(name.as_str());
        }
    }
    if update {
        let known =
            |name: &String| CASES.iter().any(|(n, ..)| n == name) || request_path::PATHS.iter().any(|r| r.name == name);
        let mut all: BTreeMap<_, _> = old.into_iter().filter(|(name, _)| known(name)).collect();
        all.extend(counts);
        return Ok(fs::write(committed, serde_json::to_string_pretty(&all)? + "\n")?);
    }
    if worse.is_empty() {
        Ok(())
    } else {
        Err(format!("dearer than committed by more than 5 %, or new: {}", worse.join(", ")).into())
    }
}

fn exceeds(now: u64, before: u64) -> bool {
    now as f64 > before as f64 * (1.0 + TOLERANCE)
}

fn verdict(name: &str, now: u64, before: Option<u64>) -> String {
    let change = before.map_or("new".into(), |b| format!("{:+.1} %", (now as f64 / b.max(1) as f64 - 1.0) * 100.0));
    format!("{name:28} {now:>12} instructions  {change}")
}

fn count(name: &str) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted_rounds*"]);
    command.arg(std::env::current_exe()?).args(["instructions", "--case", name]);
    let out = command.output().map_err(|e| format!("valgrind: {e}"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    let collected = text.lines().find_map(|l| l.split_once("Collected : ")?.1.trim().parse().ok());
    match collected {
        Some(n) if out.status.success() && n > 0 => Ok(n),
        _ => Err(format!("callgrind counted nothing for {name}: {text}").into()),
    }
}

fn parse_request_head() -> Result<Round> {
    let limits = HeadLimits::default();
    Ok(Box::new(move || {
        if let Ok(Some((line, _))) = parse_request(black_box(REQUEST), &limits) {
            let _ = black_box(request_framing(line.version, &line.method, &line.headers));
        }
    }))
}

fn parse_response_head() -> Result<Round> {
    let limits = HeadLimits::default();
    Ok(Box::new(move || {
        if let Ok(Some((head, _))) = parse_response(black_box(RESPONSE), &limits) {
            let _ = black_box(response_framing(&Method::POST, &head));
        }
    }))
}

fn write_request() -> Result<Round> {
    let (line, _) = parse_request(REQUEST, &HeadLimits::default())?.ok_or("an unfinished head")?;
    let mut out = Vec::with_capacity(1024);
    Ok(Box::new(move || {
        out.clear();
        write_request_head(&mut out, &line.method, "/v1/messages?beta=true", line.version, &line.headers);
        black_box(&out);
    }))
}

fn write_response() -> Result<Round> {
    let (head, _) = parse_response(RESPONSE, &HeadLimits::default())?.ok_or("an unfinished head")?;
    let mut out = Vec::with_capacity(1024);
    Ok(Box::new(move || {
        out.clear();
        write_response_head(&mut out, &head);
        black_box(&out);
    }))
}

fn decode_chunks() -> Result<Round> {
    let mut wire = b"400\r\n".to_vec();
    wire.resize(wire.len() + 1024, b'x');
    wire.extend_from_slice(b"\r\n");
    let wire = [wire.repeat(8).as_slice(), b"0\r\n\r\n"].concat();
    let limits = HeadLimits::default();
    Ok(Box::new(move || {
        let mut buf = BytesMut::from(&wire[..]);
        let mut decoder = BodyDecoder::new(BodyFraming::Chunked, &limits);
        while let Ok(DecodeStep::Data(data)) = decoder.decode(&mut buf) {
            black_box::<Bytes>(data);
        }
    }))
}

fn sse_event() -> Result<Round> {
    let event = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n";
    let mut parser = SseParser::new(1 << 20);
    Ok(Box::new(move || {
        parser.push(black_box(event));
        let _ = black_box(parser.next_event());
    }))
}

fn client_hello() -> Result<Round> {
    let bytes = (0..CLIENT_HELLO.len() / 2).map(|i| u8::from_str_radix(&CLIENT_HELLO[i * 2..i * 2 + 2], 16));
    let bytes: Vec<u8> = bytes.collect::<std::result::Result<_, _>>()?;
    Ok(Box::new(move || {
        if let Ok(Some(hello)) = ClientHello::parse(black_box(&bytes)) {
            black_box(hello.ja4());
        }
    }))
}

fn mint_leaf() -> Result<Round> {
    let dir = tempfile::tempdir()?;
    let ca = CertificateAuthority::open_or_create(dir.path())?;
    let mut host = 0;
    Ok(Box::new(move || {
        host += 1;
        black_box(ca.server_tls(&Host::Name(format!("host{host:04}.example").into()), Alpn::Http1));
    }))
}

/// A prompt of 2 KB with six things to find, none seen before.
fn redact_prompt() -> Result<Round> {
    let redactor = Redactor::default();
    let filler =
        "The committee met again on the second floor and went through the list of open questions, one by one. ";
    let text = format!(
        "{}Please write to Anna Smith at anna.smith@example.com or call +1 212 555 2368. {}Her card is 4111 1111 1111 1111, \
         her number 123-45-6789, and the server is 10.20.30.40. {}",
        filler.repeat(6),
        filler.repeat(6),
        filler.repeat(6)
    );
    Ok(Box::new(move || {
        let _ = black_box(redactor.redact_text(black_box(&text), &mut RedactionSession::one_way()));
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_of_five_percent_is_tolerated_and_six_is_not() {
        assert!(!exceeds(105, 100));
        assert!(exceeds(106, 100));
        assert!(!exceeds(50, 100));
    }

    #[test]
    fn every_case_runs() {
        for (name, ..) in CASES {
            run_case(name).unwrap();
        }
        assert!(run_case("nothing").is_err());
        let limits = HeadLimits::default();
        assert!(parse_request(REQUEST, &limits).unwrap().is_some());
        assert!(parse_response(RESPONSE, &limits).unwrap().is_some());
    }
}
