//! The URL of a place in object storage: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
//! `file:///folder`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use interflow_types::secret_names::without_credentials;
use object_store::path::Path as ObjectPath;
use percent_encoding::percent_decode_str;

use crate::objects::error::ObjectError;

interflow_types::labelled_enum! {
    /// What kind of storage a URL names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ObjectScheme {
        /// Amazon S3, or a server that speaks its protocol.
        S3 "s3",
        /// Google Cloud Storage.
        Gcs "gs",
        /// Azure Blob Storage.
        Azure "az",
        /// A folder of this machine.
        File "file",
    }
}

/// Names of the options that a URL of the scheme may carry, as `?region=eu-central-1`, separated by spaces. They are
/// settings of the scheme's client, and none is a secret.
const fn option_names(scheme: ObjectScheme) -> &'static str {
    match scheme {
        ObjectScheme::S3 => {
            "region endpoint virtual_hosted_style_request server_side_encryption sse_kms_key_id sse_bucket_key_enabled \
             request_payer"
        }
        ObjectScheme::Azure => "account_name endpoint",
        ObjectScheme::Gcs | ObjectScheme::File => "",
    }
}

/// A place in object storage. It holds no secret: credentials come from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    pub(crate) scheme: ObjectScheme,
    /// The bucket or container; empty for a folder.
    pub(crate) bucket: String,
    /// The beginning of every object's name, without slashes at its ends; of a folder, nothing.
    pub(crate) prefix: String,
    /// The folder, if it is one.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) options: Vec<(String, String)>,
}

impl ObjectUrl {
    pub const fn scheme(&self) -> ObjectScheme {
        self.scheme
    }

    /// The folder of a `file:` URL.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The place `name` below this one.
    pub fn join(&self, name: &str) -> Self {
        let mut below = self.clone();
        match &mut below.folder {
            Some(folder) => *folder = folder.join(name),
            None if below.prefix.is_empty() => name.clone_into(&mut below.prefix),
            None => below.prefix = format!("{}/{name}", self.prefix),
        }
        below
    }
}

impl FromStr for ObjectUrl {
    type Err = ObjectError;

    fn from_str(text: &str) -> Result<Self, ObjectError> {
        // The values of a query may be credentials that somebody put there.
        let url = text.split('?').next().unwrap_or_default();
        let wrong =
            |why: String| ObjectError::Url { url: without_credentials(url).unwrap_or_else(|| url.to_owned()), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong(FORMS.to_owned()))?;
        let mut schemes = ObjectScheme::ALL.into_iter();
        let scheme =
            schemes.find(|s| scheme.eq_ignore_ascii_case(s.as_str())).ok_or_else(|| wrong(FORMS.to_owned()))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = options(scheme, query).map_err(wrong)?;
        if scheme == ObjectScheme::File {
            let path = percent_decode_str(place).decode_utf8().map_err(|_| wrong("its path is not UTF-8".into()))?;
            if !path.starts_with('/') {
                return Err(wrong("write an absolute path behind three slashes: file:///var/lib/archive".into()));
            }
            let folder = Some(PathBuf::from(path.into_owned()));
            return Ok(Self { scheme, bucket: String::new(), prefix: String::new(), folder, options });
        }
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.contains('@') || bucket.contains(':') {
            let why = "it must not hold credentials or a port: they come from the environment, an endpoint from \
                       AWS_ENDPOINT_URL or ?endpoint=";
            return Err(wrong(why.into()));
        }
        if bucket.is_empty() || !bucket.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
            return Err(wrong(format!("the name of the bucket is missing or wrong; {FORMS}")));
        }
        let prefix = prefix.trim_matches('/').to_owned();
        ObjectPath::parse(&prefix).map_err(|e| wrong(format!("its prefix cannot be used: {e}")))?;
        Ok(Self { scheme, bucket: bucket.to_owned(), prefix, folder: None, options })
    }
}

const FORMS: &str = "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder";

fn options(scheme: ObjectScheme, query: &str) -> Result<Vec<(String, String)>, String> {
    let names = option_names(scheme);
    let mut options = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value =
            percent_decode_str(value).decode_utf8().map_err(|_| format!("the value of `{name}` is not UTF-8"))?;
        if !names.split_ascii_whitespace().any(|option| option == name) {
            let remedy = match names {
                "" => "it takes none".to_owned(),
                names => format!("known are {}", names.replace(' ', ", ")),
            };
            return Err(format!(
                "`{name}` is not an option of {}: {remedy}; credentials come from the environment",
                scheme.as_str()
            ));
        }
        options.push((name.to_owned(), value.into_owned()));
    }
    Ok(options)
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.folder {
            Some(folder) => write!(f, "file://{}", folder.display()),
            None if self.prefix.is_empty() => write!(f, "{}://{}", self.scheme.as_str(), self.bucket),
            None => write!(f, "{}://{}/{}", self.scheme.as_str(), self.bucket, self.prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_bucket_and_prefix() {
        for (text, shown) in [
            ("s3://b", "s3://b"),
            ("s3://b/a/b/", "s3://b/a/b"),
            ("S3://b/x?region=eu-west-1", "s3://b/x"),
            ("gs://b/x", "gs://b/x"),
            ("az://c/x?account_name=a", "az://c/x"),
            ("file:///tmp/a%20b", "file:///tmp/a b"),
        ] {
            assert_eq!(text.parse::<ObjectUrl>().unwrap().to_string(), shown, "{text}");
        }
        assert_eq!("s3://b/x".parse::<ObjectUrl>().unwrap().join("y").to_string(), "s3://b/x/y");
        assert_eq!("s3://b".parse::<ObjectUrl>().unwrap().join("y").to_string(), "s3://b/y");
        assert_eq!("file:///a".parse::<ObjectUrl>().unwrap().join("y").to_string(), "file:///a/y");
    }

    #[test]
    fn wrong_urls_are_refused_with_the_remedy_and_without_their_secrets() {
        for (text, why) in [
            ("bucket/prefix", "s3://bucket/prefix"),
            ("ftp://b", "s3://bucket/prefix"),
            ("s3://", "bucket is missing"),
            ("s3:///x", "bucket is missing"),
            ("s3://AKIA:hush@b/x", "`s3://***@b/x`"),
            ("s3://AKIA:hu/hush@b/x", "`s3://***@b/x`"),
            ("s3://b?secret_access_key=hush", "environment"),
            ("s3://b/a//b", "prefix"),
            ("file://relative", "absolute path"),
        ] {
            let error = text.parse::<ObjectUrl>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
