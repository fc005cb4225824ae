//! Every provider's wire formats through the gateway and through interception: requests are redacted and otherwise
//! unchanged, and responses are restored, in full and in each streaming format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use interflow_codec::aws_event_stream::{self, HeaderValue};
use interflow_testkit::{Answer, Origin, Reply, Request, Wire, client, client_trusting};
use serde_json::Value;

use crate::instance::{Home, Running};
use crate::wire_formats::{Framing, OPENAI, OTHERS, Shape};

const SSN: &str = "123-45-6789";
const MAIL: &str = "anna.berg@firm.com";
const SAID: &str = "I am Anna Berg, anna.berg@firm.com, SSN 123-45-6789, and that is all.";

fn shapes() -> impl Iterator<Item = &'static Shape> {
    OPENAI.iter().chain(OTHERS)
}

/// Echoes the prompt in the format that the request asks for.
async fn parrot() -> Origin {
    Origin::http().answering(respond).start().await
}

fn respond(request: &Request) -> Reply {
    let Some(shape) = request.number("shape").and_then(|n| shapes().nth(n as usize)) else {
        return Reply::status(404);
    };
    let told = String::from_utf8_lossy(&request.body).into_owned();
    let text = told.find("I am ").zip(told.find(" all.")).map_or(String::new(), |(a, b)| told[a..b + 5].to_owned());
    let text = if shape.arguments { format!("{{\"said\":\"{text}\"}}") } else { text };
    let event = |piece: &str| {
        let piece = Value::from(piece).to_string();
        shape.event.replace("$$", piece.trim_matches('"'))
    };
    if shape.framing == Framing::Whole {
        return Reply::ok(event(&text)).header("Content-Type", "application/json");
    }
    let pieces = text.as_bytes().chunks(5).map(|c| event(std::str::from_utf8(c).unwrap()));
    let events: Vec<String> = pieces.chain([shape.end.to_owned()]).collect();
    let (media, body) = framed(shape, &events);
    Reply::ok(body).header("Content-Type", media)
}

fn framed(shape: &Shape, events: &[String]) -> (&'static str, Vec<u8>) {
    let mut out = Vec::new();
    match shape.framing {
        Framing::Whole => {}
        Framing::Sse => {
            events.iter().for_each(|e| out.extend(format!("data: {e}\n\n").into_bytes()));
            return ("text/event-stream", out);
        }
        Framing::Lines => {
            events.iter().for_each(|e| out.extend(format!("{e}\n").into_bytes()));
            return (if shape.at == "cohere" { "application/stream+json" } else { "application/x-ndjson" }, out);
        }
        Framing::Growing => return ("application/json; charset=UTF-8", format!("[{}]", events.join("\n,\r\n")).into()),
        Framing::EventStream(name) => {
            for (i, e) in events.iter().enumerate() {
                let name = if i + 1 == events.len() { "contentBlockStop" } else { name };
                message(name, e.as_bytes(), &mut out);
            }
        }
        Framing::Invoked => {
            for e in events {
                let payload = format!("{{\"bytes\":\"{}\",\"p\":\"abcd\"}}", STANDARD.encode(e));
                message("chunk", payload.as_bytes(), &mut out);
            }
        }
    }
    ("application/vnd.amazon.eventstream", out)
}

fn message(name: &str, payload: &[u8], out: &mut Vec<u8>) {
    let fields = [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")];
    let fields = fields.map(|(n, v)| (n.into(), HeaderValue::String(v.into())));
    aws_event_stream::write_message(out, &fields, payload).unwrap();
}

/// The events of an answer.
fn events(shape: &Shape, answer: &Answer) -> Vec<Value> {
    let json = |text: &[u8]| serde_json::from_slice(text).unwrap_or_default();
    let lines = || answer.body.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    match shape.framing {
        Framing::Whole => vec![json(&answer.body)],
        Framing::Sse => lines().filter_map(|l| l.strip_prefix(b"data: ")).map(json).collect(),
        Framing::Lines => lines().map(json).collect(),
        Framing::Growing => json(&answer.body).as_array().cloned().unwrap_or_default(),
        Framing::EventStream(_) | Framing::Invoked => {
            let mut rest = BytesMut::from(&answer.body[..]);
            let mut all = Vec::new();
            while let Some(message) = aws_event_stream::next_message(&mut rest, 1 << 20).unwrap() {
                let event = json(&message.payload);
                let inner = event["bytes"].as_str().map(|b| json(&STANDARD.decode(b).unwrap()));
                all.push(inner.unwrap_or(event));
            }
            all
        }
    }
}

/// Whether two bodies differ only in placeholders at the redacted values.
fn only_redacted(sent: &str, mut arrived: &str) -> bool {
    let mut sent = sent;
    loop {
        let same = sent.bytes().zip(arrived.bytes()).take_while(|(a, b)| a == b).count();
        // A placeholder may share a prefix with the value.
        let at = (0..=same).rev().take(20).find_map(|at| {
            let value = [SSN, MAIL, "Anna Berg", "Anna"].into_iter().find(|v| sent[at..].starts_with(v))?;
            let end = arrived[at..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
            let (label, code) = arrived[at..at + end].rsplit_once('_')?;
            (code.len() == 8 && label.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
                .then_some((at + value.len(), at + end))
        });
        match at {
            Some((s, a)) => (sent, arrived) = (&sent[s..], &arrived[a..]),
            None => return sent == arrived,
        }
    }
}

/// Describes what is wrong with the exchange of a wire format, if anything.
fn judge(shape: &Shape, sent: &str, provider: &Origin, answer: &Answer) -> Result<(), String> {
    let arrived = provider.requests().pop().map(|r| String::from_utf8_lossy(&r.body).into_owned()).unwrap_or_default();
    if answer.status != 200 {
        return Err(format!("{}: {}", answer.status, answer.text()));
    }
    if arrived.contains(SSN) || arrived.contains(MAIL) || !only_redacted(sent, &arrived) {
        return Err(format!("arrived: {arrived}"));
    }
    if shape.text.is_empty() {
        return if answer.text() == shape.event { Ok(()) } else { Err(format!("answered: {}", answer.text())) };
    }
    let said: String = events(shape, answer).iter().map(|e| shape.said(e)).collect();
    let wanted = if shape.arguments { format!("{{\"said\":\"{SAID}\"}}") } else { SAID.to_owned() };
    let last = events(shape, answer).pop();
    let ended = shape.framing == Framing::Whole || last == serde_json::from_str(shape.end).ok();
    match said == wanted && ended {
        true => Ok(()),
        false => Err(format!("answered: {said:?}, in {}", answer.text())),
    }
}

/// A configuration that directs every provider, by gateway endpoint and by host name, to this one.
fn config(home: &Home, provider: &Origin) -> String {
    let target = provider.url("").trim_end_matches('/').to_owned();
    let names = ["openai", "anthropic", "gemini", "vertex", "azure", "ollama", "cohere", "mistral"];
    let upstreams: String = names.map(|n| format!("[llm.provider.{n}]\nurl = \"{target}\"\n")).concat();
    let mut hosts: Vec<&str> = shapes().map(|s| s.host().split(':').next().unwrap()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let rules = format!("rules: [{{when: {{host: [{}]}}, then: {{map_remote: '{target}'}}}}]\n", hosts.join(", "));
    std::fs::write(home.dir.path().join("rules.yaml"), rules).unwrap();
    let resolved: String = hosts.iter().map(|h| format!("\"{h}\" = [\"127.0.0.1\"]\n")).collect();
    format!(
        "[redact]\nproxied = \"redact\"\n[rules]\nfiles = [\"{}\"]\n[upstream.hosts]\n{resolved}{upstreams}[llm.provider.bedrock]\nurl = \"{target}\"\nregion = \"us-east-1\"\naccess_key = \"AKIDEXAMPLE\"\nsecret_key = \"secret\"\n",
        home.dir.path().join("rules.yaml").display()
    )
}

/// Connects to the provider's host name through the proxy.
async fn intercepted(running: &Running, ca: &str, shape: &Shape) -> Wire {
    let host = shape.host();
    if host.contains(':') {
        return client::connect_tunnel(running.proxy, host, None).await.unwrap();
    }
    let tunnel = client::connect_tunnel(running.proxy, &format!("{host}:443"), None).await.unwrap();
    tunnel.into_tls(host, client_trusting(ca, &["http/1.1"])).await.unwrap()
}

#[tokio::test]
async fn every_provider_format_is_redacted_and_restored_on_both_paths() {
    let home = Home::new().await;
    let provider = parrot().await;
    let running = home.start(&config(&home, &provider));
    let ca = home.say(&["ca", "export"]).ok();
    let mut wrong = Vec::new();
    for (i, shape) in shapes().enumerate() {
        let body = shape.ask.replace("$$", SAID);
        for through in ["gateway", "interception"] {
            let (mut wire, path, host) = match through {
                "gateway" => {
                    (Wire::connect(running.gateway).await.unwrap(), format!("/{}{}", shape.at, shape.path), "gate")
                }
                _ => (intercepted(&running, &ca, shape).await, shape.path.to_owned(), shape.host()),
            };
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nx-shape: {i}\r\nAuthorization: Bearer k\r\nx-api-key: k\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
                shape.media,
                body.len()
            );
            wire.send([head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
            let answer = wire.answer().await.unwrap();
            if let Err(why) = judge(shape, &body, &provider, &answer) {
                wrong.push(format!("{}, {} ({through}): {why}", shape.at, shape.name));
            }
            if shape.at == "bedrock" && answer.status == 200 {
                let signed = provider.requests().pop().unwrap().header("authorization").unwrap_or_default().to_owned();
                let ours = signed.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
                    && signed.contains("/us-east-1/bedrock/aws4_request");
                if !ours {
                    wrong.push(format!("{}, {} ({through}): signed {signed:?}", shape.at, shape.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} went wrong:\n{}", wrong.len(), 2 * shapes().count(), wrong.join("\n\n"));
    running.stop();
}
