//! A small server of the S3 protocol with one bucket, in memory, whose answers a test may replace by faults. It checks
//! that requests are signed, not the signature.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::message::Request;
use crate::origin::Origin;
use crate::reply::Reply;

/// The one bucket there is.
pub const BUCKET: &str = "bucket";

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Bytes>,
    /// Parts of uploads in progress, by upload and number.
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    begun: usize,
}

/// The server; stopped when dropped.
pub struct ObjectServer {
    pub origin: Origin,
    contents: Arc<Mutex<Contents>>,
}

impl ObjectServer {
    /// A server without faults.
    pub async fn start() -> Self {
        Self::with_faults(|_| None).await
    }

    /// A server that answers with what `fault` returns, if it returns something.
    pub async fn with_faults(fault: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let contents = Arc::new(Mutex::new(Contents::default()));
        let served = Arc::clone(&contents);
        let respond = move |request: &Request| {
            fault(request).unwrap_or_else(|| served.lock().unwrap_or_else(PoisonError::into_inner).answer(request))
        };
        Self { origin: Origin::http().answering(respond).start().await, contents }
    }

    /// The variables by which a client finds it.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = self.origin.url("");
        [("AWS_ENDPOINT_URL", &*endpoint), ("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// The objects, by name.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).objects.clone()
    }

    /// Uploads in parts that were neither completed nor aborted.
    pub fn unfinished_uploads(&self) -> usize {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).uploads.len()
    }
}

impl Contents {
    fn answer(&mut self, request: &Request) -> Reply {
        if !request.header("authorization").is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 ")) {
            return s3_error(403, "AccessDenied");
        }
        let path = request.path().trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        if bucket != BUCKET {
            return s3_error(404, "NoSuchBucket");
        }
        let key = decoded(key);
        let query = request.target.split_once('?').map_or("", |(_, query)| query);
        match (request.method.as_str(), request.query("uploadId")) {
            ("POST", Some(upload)) => self.complete(upload, key),
            ("PUT", Some(upload)) => {
                let Some(parts) = self.uploads.get_mut(upload) else { return s3_error(404, "NoSuchUpload") };
                parts.insert(request.number("partNumber").unwrap_or(0) as u32, request.body.clone());
                Reply::status(200).header("ETag", "\"part\"")
            }
            ("DELETE", Some(upload)) => {
                self.uploads.remove(upload);
                Reply::status(204)
            }
            ("POST", None) if query.starts_with("uploads") => {
                self.begun += 1;
                let id = format!("upload{}", self.begun);
                self.uploads.insert(id.clone(), BTreeMap::new());
                xml(&format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            ("POST", None) if query.starts_with("delete") => self.delete_many(&request.body),
            ("GET", _) if key.is_empty() => self.list(&decoded(request.query("prefix").unwrap_or_default())),
            ("PUT", None) => {
                self.objects.insert(key, request.body.clone());
                Reply::status(200).header("ETag", "\"whole\"")
            }
            ("DELETE", None) => {
                self.objects.remove(&key);
                Reply::status(204)
            }
            ("GET" | "HEAD", _) => match self.objects.get(&key) {
                Some(bytes) => object(request, bytes),
                None => s3_error(404, "NoSuchKey"),
            },
            _ => s3_error(501, "NotImplemented"),
        }
    }

    fn complete(&mut self, upload: &str, key: String) -> Reply {
        let Some(parts) = self.uploads.remove(upload) else { return s3_error(404, "NoSuchUpload") };
        self.objects.insert(key, parts.into_values().collect::<Vec<_>>().concat().into());
        xml("<CompleteMultipartUploadResult><ETag>\"parts\"</ETag></CompleteMultipartUploadResult>")
    }

    fn delete_many(&mut self, body: &[u8]) -> Reply {
        let body = String::from_utf8_lossy(body);
        let mut answer = "<DeleteResult>".to_owned();
        for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
            self.objects.remove(key);
            let _ = write!(answer, "<Deleted><Key>{key}</Key></Deleted>");
        }
        xml(&(answer + "</DeleteResult>"))
    }

    fn list(&self, prefix: &str) -> Reply {
        let mut answer = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        for (key, bytes) in self.objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
            let _ = write!(
                answer,
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"e\"</ETag>\
                 <Size>{}</Size></Contents>",
                bytes.len()
            );
        }
        xml(&(answer + "</ListBucketResult>"))
    }
}

/// An error as S3 sends it.
pub fn s3_error(status: u16, code: &str) -> Reply {
    let text = format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>");
    Reply::status(status).header("Content-Type", "application/xml").body(text)
}

fn object(request: &Request, bytes: &Bytes) -> Reply {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let (status, bytes, of) = match range.map(|(from, to)| (from.parse::<usize>(), to.parse::<usize>())) {
        Some((Ok(from), Ok(to))) if from < bytes.len() => {
            let to = to.min(bytes.len() - 1);
            (206, bytes.slice(from..=to), Some(format!("bytes {from}-{to}/{}", bytes.len())))
        }
        _ => (200, bytes.clone(), None),
    };
    let reply = Reply::status(status).header("ETag", "\"e\"").header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT");
    let reply = if let Some(of) = of { reply.header("Content-Range", of) } else { reply };
    if request.method == "HEAD" { reply.claim_length(bytes.len() as u64) } else { reply.body(bytes) }
}

fn xml(text: &str) -> Reply {
    Reply::ok(text.to_owned()).header("Content-Type", "application/xml")
}

fn decoded(text: &str) -> String {
    let (mut out, bytes) = (Vec::new(), text.as_bytes());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex {
            Some(hex) if byte == b'%' => {
                out.push(hex);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
