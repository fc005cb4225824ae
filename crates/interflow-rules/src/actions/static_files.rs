//! Responses from files: paths confined to a folder, ranges and conditional requests.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use interflow_types::{Body, Method, RequestHead, RequestedRange, Response, ResponseHead, StatusCode};
use percent_encoding::percent_decode_str;

use crate::text::dates::{format_http_date, parse_http_date};

/// How many bytes of a file are answered with at most, since they are held in memory.
pub(crate) const MAX_FILE_SIZE: u64 = 256 << 20;

/// # Errors
/// More than [`MAX_FILE_SIZE`] bytes.
pub(crate) fn check_size(bytes: u64) -> io::Result<()> {
    if bytes > MAX_FILE_SIZE {
        return Err(io::Error::other(format!("it has {bytes} bytes, and at most {MAX_FILE_SIZE} are answered with")));
    }
    Ok(())
}

/// The part of a file that a request asks for, and the version that it knows (RFC 9110 13 and 14).
#[derive(Debug, Default)]
pub(crate) struct FileConditions {
    range: Option<String>,
    if_range: Option<String>,
    if_match: Option<String>,
    if_unmodified_since: Option<String>,
    if_none_match: Option<String>,
    if_modified_since: Option<String>,
    /// Whether the method has such conditions, so that the response says that it supports them.
    apply: bool,
}

impl FileConditions {
    pub fn of(request: &RequestHead) -> Self {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Self::default();
        }
        let field = |name| request.headers.get_str(name).map(|value| value.trim().to_owned());
        Self {
            // Ranges are defined for GET only (14.2).
            range: field("range").filter(|_| request.method == Method::GET),
            if_range: field("if-range"),
            if_match: field("if-match"),
            if_unmodified_since: field("if-unmodified-since"),
            if_none_match: field("if-none-match"),
            if_modified_since: field("if-modified-since"),
            apply: true,
        }
    }

    /// The response for a file; to HEAD without its content.
    ///
    /// # Errors
    /// A file that cannot be read, or is too large.
    pub fn answer(&self, path: &Path, mut head: ResponseHead, is_head: bool) -> io::Result<Response> {
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        let length = about.len();
        let mut part = 0..length;
        if self.apply {
            let modified = about.modified().unwrap_or(UNIX_EPOCH).duration_since(UNIX_EPOCH).unwrap_or_default();
            // A file that may change within the resolution of its time has no strong validator (8.8.1).
            let fresh =
                SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_secs() <= modified.as_secs() + 1);
            let tag = format!("\"{:x}-{:x}\"", modified.as_nanos(), length);
            let tag = if fresh { format!("W/{tag}") } else { tag };
            let seconds = i64::try_from(modified.as_secs()).unwrap_or_default();
            let date = format_http_date(seconds);
            for (name, value) in [("Accept-Ranges", "bytes"), ("ETag", &tag), ("Last-Modified", &date)] {
                head.headers.append_unchecked(name.as_bytes(), value.as_bytes());
            }
            if self.is_other_version(&tag, seconds) {
                set_status(&mut head, StatusCode::PRECONDITION_FAILED);
                head.headers.remove("content-type");
                return Ok(Response { head, body: Body::Empty });
            }
            if self.is_known(&tag, seconds) {
                set_status(&mut head, StatusCode::NOT_MODIFIED);
                return Ok(Response { head, body: Body::Empty });
            }
            // Only the same strong tag, or date, says that the parts the client has are of this version (13.1.5).
            let same = self.if_range.as_ref().is_none_or(|v| !fresh && (*v == tag || *v == date));
            match RequestedRange::read(self.range.as_deref().filter(|_| same), length) {
                RequestedRange::Whole => {}
                RequestedRange::Part(range) => {
                    set_status(&mut head, StatusCode::PARTIAL_CONTENT);
                    let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
                    head.headers.append_unchecked(b"Content-Range", text.as_bytes());
                    part = range;
                }
                RequestedRange::Nothing => {
                    set_status(&mut head, StatusCode::RANGE_NOT_SATISFIABLE);
                    head.headers.append_unchecked(b"Content-Range", format!("bytes */{length}").as_bytes());
                    return Ok(Response { head, body: Body::Empty });
                }
            }
        }
        let size = part.end - part.start;
        if is_head {
            head.headers.append_unchecked(b"Content-Length", size.to_string().as_bytes());
            return Ok(Response { head, body: Body::Empty });
        }
        check_size(size)?;
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.seek(SeekFrom::Start(part.start))?;
        file.take(size).read_to_end(&mut content)?;
        if content.len() as u64 != size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was shortened while it was read"));
        }
        Ok(Response { head, body: Body::from(bytes::Bytes::from(content)) })
    }

    /// Whether the client wants another version than this one (13.2.2): `If-Match` takes precedence, and compares
    /// strongly.
    fn is_other_version(&self, tag: &str, modified: i64) -> bool {
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(list), _) => list != "*" && !list.split(',').any(|v| v.trim() == tag && !tag.starts_with("W/")),
            (None, Some(since)) => parse_http_date(since).is_some_and(|since| modified > since),
            (None, None) => false,
        }
    }

    /// Whether the client has this version (13.2.2): `If-None-Match` takes precedence, and compares weakly.
    fn is_known(&self, tag: &str, modified: i64) -> bool {
        let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(list), _) => list == "*" || list.split(',').any(|known| weak(known) == weak(tag)),
            (None, Some(since)) => parse_http_date(since).is_some_and(|since| modified <= since),
            (None, None) => false,
        }
    }
}

pub(super) fn set_status(head: &mut ResponseHead, status: StatusCode) {
    head.status = status;
    head.reason = status.canonical_reason().unwrap_or_default().into();
}

/// Resolves a request's path below a folder; `None` if it would leave the folder by dots, escapes or symbolic links.
pub(crate) fn resolve_below(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    let mut out = PathBuf::new();
    for part in decoded.split(['/', '\\']).filter(|p| !p.is_empty() && *p != ".") {
        if part.contains('\0') {
            return None;
        }
        match Path::new(part).components().collect::<Vec<_>>()[..] {
            [Component::Normal(name)] => out.push(name),
            _ => return None,
        }
    }
    let whole = folder.join(out);
    // A path that does not exist cannot be outside the folder.
    let Ok(real) = whole.canonicalize() else { return Some(whole) };
    let folder = folder.canonicalize().ok()?;
    real.starts_with(folder).then_some(real)
}

/// The file for a path below a folder; `index.html` for a folder; `None` if there is none.
pub(crate) fn find_in_folder(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let file = resolve_below(folder, path)?;
    if file.is_dir() {
        // Resolved as well, since it may be a link out of the folder.
        let index = |name| resolve_below(folder, &format!("{path}/{name}")).filter(|file| file.is_file());
        return index("index.html").or_else(|| index("index.htm"));
    }
    let path = percent_decode_str(path).decode_utf8_lossy();
    // `/a.txt/` names a folder.
    let names_folder = path.ends_with(['/', '\\']) || path.ends_with("/.");
    (file.is_file() && !names_folder).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_served_in_parts_and_by_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.bin");
        std::fs::write(&path, "0123456789").unwrap();
        let old = UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(old).unwrap();
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let ask = |method: &str, fields: &[(&str, &str)]| {
            let flow = crate::flow::fixture::FlowFixture::for_request(method, "http://a.test/").unwrap();
            let mut request = flow.request.unwrap();
            fields.iter().for_each(|(n, v)| request.headers.append(n, v).unwrap());
            let head = ResponseHead::new(StatusCode::OK);
            let got = FileConditions::of(&request).answer(&path, head, method == "HEAD").unwrap();
            let body = match got.body {
                Body::Full(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => String::new(),
            };
            let field = |name| got.head.headers.get_str(name).unwrap_or("-").to_owned();
            (got.head.status.as_u16(), body, field("content-range"), field("content-length"), field("etag"))
        };
        let tag = ask("GET", &[]).4;
        let weak = format!("W/{tag}");
        assert!(tag.starts_with('"'), "{tag}");
        for (method, fields, status, body, range, length) in [
            ("GET", vec![], 200, "0123456789", "-", "-"),
            ("HEAD", vec![], 200, "", "-", "10"),
            ("GET", vec![("Range", "bytes=2-4")], 206, "234", "bytes 2-4/10", "-"),
            ("GET", vec![("Range", "bytes=-3")], 206, "789", "bytes 7-9/10", "-"),
            ("GET", vec![("Range", "bytes=0-1,4-5")], 200, "0123456789", "-", "-"),
            ("GET", vec![("Range", "bytes=10-")], 416, "", "bytes */10", "-"),
            ("HEAD", vec![("Range", "bytes=2-4")], 200, "", "-", "10"),
            ("POST", vec![("Range", "bytes=2-4")], 200, "0123456789", "-", "-"),
            ("GET", vec![("If-None-Match", weak.as_str())], 304, "", "-", "-"),
            ("GET", vec![("If-None-Match", "\"x\", *")], 200, "0123456789", "-", "-"),
            ("GET", vec![("If-None-Match", "\"x\""), ("If-Modified-Since", date)], 200, "0123456789", "-", "-"),
            ("GET", vec![("If-Modified-Since", date)], 304, "", "-", "-"),
            ("HEAD", vec![("If-Modified-Since", date)], 304, "", "-", "-"),
            ("GET", vec![("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")], 200, "0123456789", "-", "-"),
            ("GET", vec![("If-Match", "\"x\"")], 412, "", "-", "-"),
            ("HEAD", vec![("If-Match", weak.as_str())], 412, "", "-", "-"),
            ("GET", vec![("If-Match", "\"x\""), ("If-None-Match", tag.as_str())], 412, "", "-", "-"),
            ("GET", vec![("If-Match", tag.as_str()), ("If-None-Match", tag.as_str())], 304, "", "-", "-"),
            ("GET", vec![("If-Match", "*"), ("Range", "bytes=2-4")], 206, "234", "bytes 2-4/10", "-"),
            ("GET", vec![("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")], 412, "", "-", "-"),
            ("GET", vec![("If-Unmodified-Since", date)], 200, "0123456789", "-", "-"),
            ("POST", vec![("If-Match", "\"x\"")], 200, "0123456789", "-", "-"),
            ("GET", vec![("Range", "bytes=2-4"), ("If-Range", tag.as_str())], 206, "234", "bytes 2-4/10", "-"),
            ("GET", vec![("Range", "bytes=2-4"), ("If-Range", date)], 206, "234", "bytes 2-4/10", "-"),
            ("GET", vec![("Range", "bytes=2-4"), ("If-Range", "\"x\"")], 200, "0123456789", "-", "-"),
        ] {
            let got = ask(method, &fields);
            let got = (got.0, got.1.as_str(), got.2.as_str(), got.3.as_str());
            assert_eq!(got, (status, body, range, length), "{method} {fields:?}");
        }
        file.set_modified(SystemTime::now()).unwrap();
        assert!(ask("GET", &[]).4.starts_with("W/"), "a file that may still change");
        let now = format_http_date(crate::text::dates::unix_now());
        assert_eq!(ask("GET", &[("Range", "bytes=2-4"), ("If-Range", now.as_str())]).0, 200);
    }

    #[test]
    fn path_traversal_out_of_the_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("a.txt"), "a").unwrap();
        std::fs::write(root.join("sub/index.html"), "i").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(dir.path().join("secret"), root.join("link")).unwrap();
            for (folder, target) in [("out", dir.path().join("secret")), ("in", root.join("a.txt"))] {
                std::fs::create_dir(root.join(folder)).unwrap();
                symlink(target, root.join(folder).join("index.html")).unwrap();
            }
            assert_eq!(find_in_folder(&root, "/in/"), root.join("a.txt").canonicalize().ok());
        }
        for (path, found) in [
            ("/a.txt", true),
            ("/a.txt?x=1", true),
            ("//./a.txt", true),
            ("/sub/", true),
            ("/sub", true),
            ("/a.txt/", false),
            ("/a.txt/?x=1", false),
            ("/sub/index.html/", false),
            ("/%61.txt", true),
            ("/../secret", false),
            ("/%2e%2e/secret", false),
            ("/..%2fsecret", false),
            ("/..\\secret", false),
            ("/sub/../../secret", false),
            ("/link", false),
            ("/out/", false),
            ("/out", false),
            ("/none", false),
            ("/", false),
            ("/a.txt%00", false),
        ] {
            assert_eq!(find_in_folder(&root, path).is_some(), found, "{path}");
        }
    }
}
