//! Errors of object storage: what was done where, why it failed, and what the operator can do.

use std::error::Error as StdError;

use interflow_types::data_file;
use object_store::Error as StoreError;

pub type Result<T> = std::result::Result<T, ObjectError>;

/// A failed operation. The place is a URL without credentials.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The URL itself, or a setting of the environment, cannot be used.
    #[error("`{url}` cannot be used as object storage: {why}")]
    Url { url: String, why: String },
    /// There is no such object.
    #[error("{place}: there is no object `{name}`")]
    NotFound { place: String, name: String },
    /// The storage refused; it will refuse again until somebody changes something.
    #[error("{place}: {action} failed: {why}; {remedy}")]
    Refused { place: String, action: &'static str, why: String, remedy: String },
    /// The storage did not answer, or not in time, or is overloaded: a later attempt may succeed.
    #[error(
        "{place}: {action} failed: {why}; it is tried again while Interflow runs: check the network and the storage"
    )]
    Unavailable { place: String, action: &'static str, why: String },
}

impl ObjectError {
    /// Whether a later attempt may succeed without anybody's help.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    pub(crate) fn without_credentials(place: &str) -> Self {
        let why =
            "no credentials were found, neither in the environment nor from this machine's metadata service".into();
        Self::Refused { place: place.to_owned(), action: "signing requests", why, remedy: CREDENTIALS.to_owned() }
    }

    /// Translates an error of `action`, such as "writing", on the object `name`.
    pub(crate) fn from_store(place: &str, action: &'static str, name: &str, error: &StoreError) -> Self {
        let place = place.to_owned();
        let text = chain(error);
        // An answer without a code is about the object; a code says whether the bucket is missing instead.
        if let Some((why, remedy)) = cause(&text) {
            let remedy = match region_of(&text) {
                Some(region) => format!("set AWS_REGION={region}, which the storage named"),
                None => remedy.to_owned(),
            };
            return Self::Refused { place, action, why: why.to_owned(), remedy };
        }
        match error {
            StoreError::NotFound { .. } => Self::NotFound { place, name: name.to_owned() },
            StoreError::PermissionDenied { .. } => Self::Refused {
                place,
                action,
                why: format!("access was denied ({})", short(&text)),
                remedy: RIGHTS.to_owned(),
            },
            StoreError::Unauthenticated { .. } => Self::Refused {
                place,
                action,
                why: format!("the credentials were not accepted ({})", short(&text)),
                remedy: CREDENTIALS.to_owned(),
            },
            // A panic of the client: whatever caused it will be there the next time.
            StoreError::JoinError { .. }
            | StoreError::InvalidPath { .. }
            | StoreError::NotSupported { .. }
            | StoreError::NotImplemented { .. }
            | StoreError::UnknownConfigurationKey { .. } => {
                Self::Refused { place, action, why: short(&text), remedy: "check the URL and its options".to_owned() }
            }
            _ => match local_cause(error) {
                Some((why, remedy)) => Self::Refused { place, action, why, remedy: remedy.to_owned() },
                None => Self::Unavailable { place, action, why: short(&text) },
            },
        }
    }
}

const RIGHTS: &str = "give the credentials the rights to read, write, delete and list objects there (S3: s3:GetObject, \
                      s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload)";
pub(crate) const CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (S3), GOOGLE_APPLICATION_CREDENTIALS (Google), \
                           or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (Azure) in the environment of \
                           Interflow, or give the machine a role";

/// The cause in words of an answer with this text, and the remedy.
fn cause(text: &str) -> Option<(&'static str, &'static str)> {
    let mut causes = data_file::records::<3>(include_str!("../../data/object_errors.txt"));
    let [_, why, remedy] = causes.find(|[marks, ..]| marks.split(',').any(|mark| text.contains(mark.trim())))?;
    Some((
        why,
        match remedy {
            "CREDENTIALS" => CREDENTIALS,
            "RIGHTS" => RIGHTS,
            other => other,
        },
    ))
}

/// The region that S3 names when a request was signed for another.
fn region_of(text: &str) -> Option<&str> {
    let at = text.find("<Region>")? + "<Region>".len();
    text[at..].split('<').next().filter(|region| !region.is_empty())
}

/// What a file system says.
fn local_cause(error: &StoreError) -> Option<(String, &'static str)> {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(e) = source {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            let remedy = match io.kind() {
                std::io::ErrorKind::PermissionDenied => "give the user that Interflow runs as the right to write there",
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => "free space on that disk",
                std::io::ErrorKind::ReadOnlyFilesystem => "name a folder that can be written",
                _ => return None,
            };
            return Some((io.to_string(), remedy));
        }
        source = e.source();
    }
    None
}

/// The texts of an error and its sources.
fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        let more = e.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = e.source();
    }
    text
}

/// One line of bounded length: answers may be pages.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(300) { format!("{}…", &line[..at]) } else { line }
}
