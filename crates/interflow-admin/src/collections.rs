//! Collections of composed requests, a file each in the data directory, and the history of what was sent.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use axum::http::StatusCode;
use interflow_files::{FileAccess, create_private_dir, optional, write_atomic};
use interflow_types::schema::JsonSchema;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, Result};

/// Maximum size of a collection's file and of the history's, in bytes.
const MAX_FILE: u64 = 4 << 20;
const MAX_COLLECTIONS: usize = 200;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 64;
/// Requests in the history, and the maximum length of a body in it.
const MAX_HISTORY: usize = 100;
const MAX_HISTORY_BODY: usize = 32 << 10;

/// A request as the operator wrote it: its texts may contain variables, `{{name}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComposedRequest {
    #[serde(default)]
    name: String,
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    assertions: Vec<Assertion>,
}

/// What the response should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Assertion {
    kind: AssertionKind,
    /// The name of the header field, or the path in the JSON; nothing for the status.
    #[serde(default)]
    at: String,
    expected: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AssertionKind {
    Status,
    Header,
    Json,
}

/// A value that replaces `{{name}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variable {
    name: String,
    value: String,
}

/// A named set of variables, such as those of a staging server. They replace the collection's variables of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Environment {
    name: String,
    #[serde(default)]
    variables: Vec<Variable>,
}

/// A file of requests, with the values of their variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Collection {
    #[serde(default)]
    variables: Vec<Variable>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environments: Vec<Environment>,
    #[serde(default)]
    requests: Vec<ComposedRequest>,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct CollectionEntry {
    name: String,
    size: u64,
    /// When it was changed last, in microseconds since 1970.
    modified: u64,
}

/// The folder of the collections.
pub(crate) struct CollectionStore {
    dir: PathBuf,
    /// Held while a file is compared and replaced.
    writing: Mutex<()>,
}

impl CollectionStore {
    pub fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("collections"), writing: Mutex::new(()) }
    }

    pub fn list(&self) -> Result<Vec<CollectionEntry>> {
        let entries = optional(fs::read_dir(&self.dir)).map_err(|e| failed(&self.dir, &e))?;
        let mut list = Vec::new();
        for entry in entries.into_iter().flatten().flatten() {
            let file = entry.file_name();
            let Some(name) = file.to_str().and_then(|f| f.strip_suffix(".json")) else { continue };
            let Some(metadata) = entry.metadata().ok().filter(|m| m.is_file()) else { continue };
            if is_name(name) {
                let since = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
                let modified = since.map_or(0, |t| u64::try_from(t.as_micros()).unwrap_or(0));
                list.push(CollectionEntry { name: name.to_owned(), size: metadata.len(), modified });
            }
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    /// The collection and its revision.
    pub fn read(&self, name: &str) -> Result<(Collection, String)> {
        let bytes = self.bytes(&self.path(name)?)?.ok_or_else(|| no_collection(name))?;
        Ok((parse(name, &bytes)?, revision(&bytes)))
    }

    /// Creates a collection, or changes one whose revision is given. Returns the new revision.
    pub fn write(&self, name: &str, collection: &Collection, base: Option<&str>) -> Result<String> {
        let path = self.path(name)?;
        let bytes = encoded(collection)?;
        let _writing = self.writing.lock();
        let now = self.bytes(&path)?;
        if now.as_deref().map(revision).as_deref() != base {
            let message = match (now, base) {
                (Some(_), None) => format!("there is a collection '{name}' already"),
                _ => format!("the collection '{name}' was changed by someone else in the meantime"),
            };
            return Err(ApiError::new(StatusCode::CONFLICT, "changed_meanwhile", message)
                .remedy("read it again and make the change there, or save under another name"));
        }
        if now.is_none() && self.list()?.len() >= MAX_COLLECTIONS {
            let message = format!("there are {MAX_COLLECTIONS} collections already");
            return Err(ApiError::unprocessable("too_many", message));
        }
        self.replace(&path, &bytes)?;
        Ok(revision(&bytes))
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        let removed = optional(fs::remove_file(&path)).map_err(|e| failed(&path, &e))?;
        removed.ok_or_else(|| no_collection(name))
    }

    /// The requests sent, the latest first.
    pub fn history(&self) -> Result<Vec<ComposedRequest>> {
        // The history is rewritten with every request, so a damaged one is as good as none.
        let bytes = self.bytes(&self.history_path())?;
        Ok(bytes.and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default())
    }

    /// Adds a request to the history; an equal one moves to the front.
    pub fn remember(&self, mut request: ComposedRequest) -> Result<()> {
        if request.body.len() > MAX_HISTORY_BODY {
            request.body.clear();
        }
        let _writing = self.writing.lock();
        let mut history = self.history()?;
        history.retain(|before| *before != request);
        history.insert(0, request);
        history.truncate(MAX_HISTORY);
        while encoded(&history).is_err() && history.len() > 1 {
            history.pop();
        }
        self.replace(&self.history_path(), &encoded(&history)?)
    }

    pub fn clear_history(&self) -> Result<()> {
        let path = self.history_path();
        optional(fs::remove_file(&path)).map(drop).map_err(|e| failed(&path, &e))
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        if !is_name(name) {
            return Err(ApiError::bad_request(format!("'{name}' cannot be the name of a collection")).remedy(format!(
                "write at most {MAX_NAME} letters, digits, spaces, '-', '_' and '.', a letter or digit first and last"
            )));
        }
        Ok(self.dir.join(format!("{name}.json")))
    }

    /// Not a name that a collection can have.
    fn history_path(&self) -> PathBuf {
        self.dir.join(".history.json")
    }

    /// `None` if there is no such file.
    fn bytes(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let read = || {
            let mut bytes = Vec::new();
            fs::File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(bytes)
        };
        let bytes = optional(read()).map_err(|e| failed(path, &e))?;
        match bytes.as_ref().is_some_and(|bytes| bytes.len() as u64 > MAX_FILE) {
            true => Err(ApiError::too_large(&path.display().to_string(), MAX_FILE)),
            false => Ok(bytes),
        }
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let written = create_private_dir(&self.dir).and_then(|()| write_atomic(path, bytes, FileAccess::Private));
        written.map_err(|e| failed(path, &e))
    }
}

/// A name that is a file name on every system, and leads to no other folder.
fn is_name(name: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= MAX_NAME
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b" -_.".contains(b))
}

fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        let message = format!("the file of the collection '{name}' cannot be read: {e}");
        ApiError::unprocessable("malformed_collection", message)
    })
}

fn encoded(content: &impl Serialize) -> Result<Vec<u8>> {
    let bytes = serde_json::to_vec_pretty(content).map_err(|e| ApiError::internal(e.to_string()))?;
    if bytes.len() as u64 > MAX_FILE { Err(ApiError::too_large("the collection", MAX_FILE)) } else { Ok(bytes) }
}

fn revision(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

fn failed(path: &Path, e: &io::Error) -> ApiError {
    ApiError::internal(format!("{}: {e}", path.display()))
}

fn no_collection(name: &str) -> ApiError {
    ApiError::not_found(format!("there is no collection '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str) -> ComposedRequest {
        ComposedRequest { method: "GET".into(), url: url.into(), ..ComposedRequest::default() }
    }

    #[test]
    fn names_lead_to_no_other_folder() {
        for good in ["a", "My API", "v1.2_x-y"] {
            assert!(is_name(good), "{good}");
        }
        for bad in
            ["", ".", "..", "../x", "a/b", "a\\b", ".history", "a.", " a", "a ", "é", "a\0", "C:x", &"a".repeat(65)]
        {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn environments_are_kept_and_files_without_them_stay_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let store = CollectionStore::new(dir.path());
        let plain = Collection { requests: vec![request("{{base}}/")], ..Collection::default() };
        store.write("plain", &plain, None).unwrap();
        let text = fs::read_to_string(store.path("plain").unwrap()).unwrap();
        assert!(!text.contains("environments"), "{text}");
        let base = Variable { name: "base".into(), value: "http://staging.test".into() };
        let staging = Environment { name: "staging".into(), variables: vec![base] };
        let named = Collection { environments: vec![staging], ..plain };
        store.write("named", &named, None).unwrap();
        assert_eq!(store.read("named").unwrap().0, named);
    }

    #[test]
    fn history_is_bounded_and_keeps_an_equal_request_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = CollectionStore::new(dir.path());
        for i in 0..MAX_HISTORY + 20 {
            store.remember(request(&format!("http://a.test/{i}"))).unwrap();
        }
        store.remember(request("http://a.test/100")).unwrap();
        let history = store.history().unwrap();
        assert_eq!((history.len(), history[0].url.as_str()), (MAX_HISTORY, "http://a.test/100"));
        assert_eq!(history.iter().filter(|r| r.url == "http://a.test/100").count(), 1);
        let long = ComposedRequest { body: "x".repeat(MAX_HISTORY_BODY + 1), ..request("http://a.test/long") };
        store.remember(long).unwrap();
        assert_eq!(store.history().unwrap()[0].body, "");
        store.clear_history().unwrap();
        assert!(store.history().unwrap().is_empty());
    }
}
