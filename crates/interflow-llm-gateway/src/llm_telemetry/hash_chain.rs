//! The hash chain of an audit log: each line ends with a hash over itself and the previous hash, the first line of a
//! file has the file's number, and a `.head` file beside the log describes the last line. Changed, moved, inserted or
//! truncated lines are therefore detected at either end.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use interflow_files::{optional, owner_only};
use sha2::{Digest, Sha256};

/// The hash before the very first line.
const GENESIS_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const HASH_MARK: &str = ",\"hash\":\"";
const FILE_MARK: &str = ",\"file\":";
const PREVIOUS_MARK: &str = ",\"prev\":\"";

/// The largest number of a rotated file. What has a larger one, such as a date, is another's.
const MAX_ROTATED: u32 = 99_999;

/// Completes a line: `open` is its JSON without the closing brace, `file` the file's number if this is its first
/// line. Returns the line and its hash.
fn seal_line(open: &str, file: Option<u64>, before: &str, key: Option<&[u8]>) -> (String, String) {
    let mut line = open.to_owned();
    if let Some(file) = file {
        let _ = write!(line, "{FILE_MARK}{file}");
    }
    let _ = write!(line, "{PREVIOUS_MARK}{before}\"");
    let hash = hash(line.as_bytes(), key);
    let _ = write!(line, "{HASH_MARK}{hash}\"}}");
    (line, hash)
}

fn hash(bytes: &[u8], key: Option<&[u8]>) -> String {
    let digest: [u8; 32] = match key {
        Some(key) => {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
            mac.update(bytes);
            mac.finalize().into_bytes().into()
        }
        None => Sha256::digest(bytes).into(),
    };
    hex::encode(digest)
}

/// What the hash of a line is over, and the hash; `None` if it ends without one.
fn split_hash(line: &str) -> Option<(&str, &str)> {
    let (open, rest) = line.rsplit_once(HASH_MARK)?;
    Some((open, rest.strip_suffix("\"}").filter(|hash| hash.len() == 64)?))
}

/// The number of its file in a first line.
fn file_number(line: &str) -> Option<u64> {
    line.rsplit_once(PREVIOUS_MARK)?.0.rsplit_once(FILE_MARK)?.1.parse().ok()
}

/// The rotated files beside a log with their numbers, the oldest first.
pub(super) fn rotated_files(log: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?.file_name();
        let number = entry.to_str().and_then(|entry| entry.rsplit_once('.')?.1.parse().ok());
        let number = number.filter(|n| (1..=MAX_ROTATED).contains(n) && entry == *format!("{name}.{n}"));
        files.extend(number.map(|n| (n, folder.join(&entry))));
    }
    files.sort_unstable_by_key(|(n, _)| Reverse(*n));
    Ok(files)
}

/// The last line of a log, as recorded in its `.head` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChainHead {
    /// The file's number.
    file: u64,
    /// The number of its lines.
    lines: u64,
    /// The hash of the last line.
    hash: String,
}

impl ChainHead {
    /// The path of the `.head` file.
    pub fn path(log: &Path) -> PathBuf {
        PathBuf::from(format!("{}.head", log.display()))
    }

    /// Its text, of constant length, so that it can be overwritten in place.
    pub fn to_line(&self, key: Option<&[u8]>) -> String {
        let open = format!("{{\"file\":{:>10},\"lines\":{:>12},\"last\":\"{}\"", self.file, self.lines, self.hash);
        let mac = hash(open.as_bytes(), key);
        format!("{open}{HASH_MARK}{mac}\"}}\n")
    }

    /// Reads it; `None` if it does not exist.
    ///
    /// # Errors
    /// It was modified, or written with another key.
    pub fn read(log: &Path, key: Option<&[u8]>) -> Result<Option<Self>, ChainError> {
        let path = Self::path(log);
        let text = optional(fs::read_to_string(&path));
        let text = text.map_err(|e| ChainError::at_line(&path, 1, format!("it cannot be read: {e}")))?;
        // A log that was opened and has no line yet has an empty one.
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let changed = || ChainError::at_line(&path, 1, "it was modified, or written with another key");
        let split = split_hash(text.trim_end()).filter(|(open, stored)| hash(open.as_bytes(), key) == *stored);
        let (open, _) = split.ok_or_else(changed)?;
        let line: serde_json::Value = serde_json::from_str(&format!("{open}}}")).map_err(|_| changed())?;
        let number = |name: &str| line[name].as_u64().ok_or_else(changed);
        let hash = line["last"].as_str().ok_or_else(changed)?.to_owned();
        Ok(Some(Self { file: number("file")?, lines: number("lines")?, hash }))
    }
}

/// Writes the hash chain.
pub(super) struct ChainWriter {
    key: Option<Vec<u8>>,
    /// The current file, and the hash that the next line refers to.
    pub head: ChainHead,
    /// The `.head` file; none for standard output.
    beside: Option<File>,
}

impl ChainWriter {
    /// Continues at the end of the log, as [`read_end`] has it. If the log is shorter than its `.head` file says, the chain
    /// continues as if it were complete, so that verification finds the gap. Without that file nothing says where the log
    /// ended, and the chain continues with a break.
    pub fn open(path: Option<&Path>, key: Option<Vec<u8>>, end: Option<ChainHead>) -> Result<Self, String> {
        let first = ChainHead { file: 1, lines: 0, hash: GENESIS_HASH.into() };
        let Some(path) = path else { return Ok(Self { key, head: first, beside: None }) };
        let wrong = |e: io::Error| format!("audit.file: {} cannot be opened: {e}", path.display());
        let mut is_end_known = ChainHead::path(path).exists();
        let chain_head = ChainHead::read(path, key.as_deref()).unwrap_or_else(|broken| {
            tracing::error!("audit: {broken}; the log goes on without it");
            is_end_known = false;
            None
        });
        let head = match (chain_head, end) {
            (Some(chain_head), Some(end)) if chain_head.file == end.file && chain_head.lines > end.lines => {
                tracing::error!("audit: {}: the last lines are gone", path.display());
                ChainHead { lines: end.lines, ..chain_head }
            }
            (None, Some(end)) if !is_end_known => {
                let path = path.display();
                tracing::error!("audit: {path}.head is missing or invalid: lines of {path} may have been cut off");
                ChainHead { hash: GENESIS_HASH.into(), ..end }
            }
            (_, Some(end)) => end,
            (Some(chain_head), None) => ChainHead { file: chain_head.file + 1, lines: 0, hash: chain_head.hash },
            (None, None) => first,
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let beside = owner_only(&mut options).open(ChainHead::path(path)).map_err(wrong)?;
        Ok(Self { key, head, beside: Some(beside) })
    }

    /// Completes a line. Returns also the head of the chain once this line is written.
    pub fn seal_line(&self, open: &str) -> (String, ChainHead) {
        let first = (self.head.lines == 0).then_some(self.head.file);
        let (line, hash) = seal_line(open, first, &self.head.hash, self.key.as_deref());
        (line, ChainHead { file: self.head.file, lines: self.head.lines + 1, hash })
    }

    pub fn write_head(&mut self) -> io::Result<()> {
        let Some(file) = self.beside.as_mut().filter(|_| self.head.lines > 0) else { return Ok(()) };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(self.head.to_line(self.key.as_deref()).as_bytes())
    }

    /// The next line begins another file.
    pub fn begin_file(&mut self) {
        self.head = ChainHead { file: self.head.file + 1, lines: 0, ..self.head.clone() };
    }
}

/// The first break in a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: line {line}: {why}", file.display())]
pub struct ChainError {
    pub file: PathBuf,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

impl ChainError {
    fn at_line(file: &Path, line: u64, why: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, why: why.into() }
    }
}

/// A valid chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedChain {
    /// Lines in all files.
    pub lines: u64,
    /// Files: the log and the rotated ones beside it.
    pub files: u64,
    /// The number of the oldest file: earlier ones were removed by rotation.
    pub oldest: u64,
    /// Whether the `.head` file confirms the end.
    pub anchored: bool,
    /// Whether nothing was ever written: the log is empty, and so is its `.head` file.
    pub is_unused: bool,
}

/// The members of a line that belong to the chain.
struct ChainLink {
    hash: String,
    prev: String,
    file: Option<u64>,
}

fn parse_link(line: &str, key: Option<&[u8]>) -> Result<ChainLink, &'static str> {
    let (open, stored) = split_hash(line).ok_or("it ends without a hash")?;
    if hash(open.as_bytes(), key) != stored {
        return Err("it was modified, or written with another key");
    }
    let prev = open.rsplit_once(PREVIOUS_MARK).and_then(|(_, prev)| prev.strip_suffix('"'));
    let prev = prev.ok_or("it does not contain the previous line's hash")?.to_owned();
    Ok(ChainLink { hash: stored.to_owned(), prev, file: file_number(open) })
}

/// Verifies a log and its rotated files (`LOG.1`, `LOG.2` and so on) as one chain.
///
/// # Errors
/// The first invalid line.
pub fn verify(log: &Path, key: Option<&[u8]>) -> Result<VerifiedChain, ChainError> {
    // Read before the log, so that lines written meanwhile come after it.
    let head = ChainHead::read(log, key)?;
    let older = rotated_files(log).map_err(|e| ChainError::at_line(log, 1, format!("it cannot be read: {e}")))?;
    let mut walk = ChainVerifier { key, head, before: None, file: None, done: VerifiedChain::default() };
    for file in older.iter().map(|(_, file)| file.as_path()).chain([log]) {
        walk.verify_file(file)?;
    }
    match walk.head {
        Some(head) if !walk.done.anchored => {
            let why = format!("the end is missing: file {} had {} lines at least", head.file, head.lines);
            Err(ChainError::at_line(log, head.lines, why))
        }
        _ => Ok(VerifiedChain { is_unused: walk.done.lines == 0 && ChainHead::path(log).exists(), ..walk.done }),
    }
}

struct ChainVerifier<'a> {
    key: Option<&'a [u8]>,
    head: Option<ChainHead>,
    before: Option<String>,
    /// The number of the current file.
    file: Option<u64>,
    done: VerifiedChain,
}

impl ChainVerifier<'_> {
    fn verify_file(&mut self, path: &Path) -> Result<(), ChainError> {
        let unread = |e: io::Error| ChainError::at_line(path, 1, format!("it cannot be read: {e}"));
        let lines = BufReader::new(File::open(path).map_err(unread)?).lines();
        for (i, line) in lines.enumerate() {
            let n = i as u64 + 1;
            let broken = |why: &str| ChainError::at_line(path, n, why);
            let line = line.map_err(|e| broken(&format!("it cannot be read: {e}")))?;
            let link = parse_link(&line, self.key).map_err(broken)?;
            if n == 1 {
                let number = link.file.ok_or_else(|| broken("it is not the first one: the beginning was cut off"))?;
                if self.file.is_some_and(|before| before + 1 != number) {
                    return Err(broken("the file before this one is missing"));
                }
                if number == 1 && link.prev != GENESIS_HASH {
                    return Err(broken("it refers to a line before the very first one"));
                }
                self.done.oldest = if self.file.is_none() { number } else { self.done.oldest };
                self.file = Some(number);
                self.done.files += 1;
            } else if link.file.is_some() {
                return Err(broken("a file begins in the middle of another"));
            }
            if self.before.as_ref().is_some_and(|b| *b != link.prev) {
                return Err(broken("the previous line is another: a line was removed, inserted or moved"));
            }
            self.done.anchored |=
                self.head.as_ref().is_some_and(|h| h.hash == link.hash && h.lines == n && Some(h.file) == self.file);
            self.before = Some(link.hash);
            self.done.lines += 1;
        }
        Ok(())
    }
}

/// The head of a log's chain, if a line has a hash, and the size of its complete lines in bytes. What follows them is a line
/// that could only be written in part.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_end(log: &Path) -> io::Result<(Option<ChainHead>, u64)> {
    let mut reader = BufReader::new(File::open(log)?);
    let (mut hash, mut line, mut bytes, mut lines, mut file) = (None, Vec::new(), 0, 0, 1);
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        bytes += line.len() as u64;
        lines += 1;
        let text = String::from_utf8_lossy(&line);
        if lines == 1 {
            file = file_number(&text).unwrap_or(1);
        }
        hash = split_hash(text.trim_end()).map(|(_, hash)| hash.to_owned()).or(hash);
        line.clear();
    }
    Ok((hash.map(|hash| ChainHead { file, lines, hash }), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of two files with four lines each, and its `.head` file.
    fn logs(key: Option<&[u8]>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.jsonl");
        let mut before = GENESIS_HASH.to_owned();
        for file in [1, 2] {
            let mut text = String::new();
            for i in 0..4 {
                let (line, hash) = seal_line(&format!("{{\"n\":{i}"), (i == 0).then_some(file), &before, key);
                before = hash;
                text += &format!("{line}\n");
            }
            fs::write(if file == 1 { log.with_extension("jsonl.1") } else { log.clone() }, text).unwrap();
        }
        let head = ChainHead { file: 2, lines: 4, hash: before };
        fs::write(ChainHead::path(&log), head.to_line(key)).unwrap();
        (dir, log)
    }

    type Change = fn(Vec<&str>) -> Vec<String>;

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|l| (*l).to_owned()).collect()
    }

    #[test]
    fn a_chain_verifies_until_it_is_modified() {
        let touched: [(&str, Change, u64, &str); 6] = [
            (
                "an edited line",
                |l| owned(&l).into_iter().map(|t| t.replace("\"n\":1", "\"n\":7")).collect(),
                2,
                "modified",
            ),
            ("the first line cut off", |l| owned(&l[1..]), 1, "the beginning was cut off"),
            ("the first two cut off", |l| owned(&l[2..]), 1, "the beginning was cut off"),
            ("the last line cut off", |l| owned(&l[..3]), 4, "the end is missing"),
            ("a line removed", |l| owned(&[l[0], l[1], l[3]]), 3, "the previous line is another"),
            ("two lines swapped", |l| owned(&[l[0], l[2], l[1], l[3]]), 2, "the previous line is another"),
        ];
        for key in [None, Some(&b"secret"[..])] {
            let (_dir, log) = logs(key);
            let whole = VerifiedChain { lines: 8, files: 2, oldest: 1, anchored: true, is_unused: false };
            assert_eq!(verify(&log, key), Ok(whole));
            let before = fs::read_to_string(&log).unwrap();
            for (what, change, line, why) in touched {
                let lines = change(before.lines().collect());
                fs::write(&log, lines.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
                let broken = verify(&log, key).expect_err(what);
                assert_eq!((broken.line, broken.why.contains(why)), (line, true), "{what}: {broken}");
            }
            fs::write(&log, "").unwrap();
            assert!(verify(&log, key).unwrap_err().why.contains("the end is missing"), "an emptied file");
        }
    }

    #[test]
    fn files_are_one_chain_and_older_ones_may_be_rotated_away() {
        let (_dir, log) = logs(None);
        let older = log.with_extension("jsonl.1");
        let text = fs::read_to_string(&older).unwrap();
        let cut: String = text.lines().take(3).map(|l| format!("{l}\n")).collect();
        fs::write(&older, cut).unwrap();
        assert_eq!(verify(&log, None).unwrap_err().line, 1, "the end of an older file is held by the next one");
        fs::remove_file(&older).unwrap();
        assert_eq!(
            verify(&log, None),
            Ok(VerifiedChain { lines: 4, files: 1, oldest: 2, anchored: true, is_unused: false })
        );
        fs::remove_file(ChainHead::path(&log)).unwrap();
        assert_eq!(verify(&log, None).map(|v| v.anchored), Ok(false));
    }

    #[test]
    fn the_head_cannot_be_forged_without_the_key() {
        let (_dir, log) = logs(Some(b"secret"));
        assert!(verify(&log, None).is_err());
        let head = ChainHead { file: 2, lines: 3, hash: "0".repeat(64) };
        fs::write(ChainHead::path(&log), head.to_line(None)).unwrap();
        assert!(verify(&log, Some(b"secret")).unwrap_err().file.ends_with("audit.jsonl.head"));
    }

    #[test]
    fn complete_lines_after_the_head_belong_to_the_chain() {
        let (_dir, log) = logs(None);
        let end = read_end(&log).unwrap().0.unwrap();
        let (line, _) = seal_line("{\"n\":9", None, &end.hash, None);
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, format!("{text}{line}\n{{\"torn")).unwrap();
        let (end, whole) = read_end(&log).unwrap();
        assert_eq!((end.unwrap().lines, whole as usize), (5, text.len() + line.len() + 1));
        fs::write(&log, format!("{text}{line}\n")).unwrap();
        assert_eq!(verify(&log, None).map(|v| (v.lines, v.anchored)), Ok((9, true)));
    }
}
