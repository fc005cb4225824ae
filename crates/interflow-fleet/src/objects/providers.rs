//! Clients of each kind of storage, set up from the environment by the names that the clouds' own tools use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interflow_files::create_private_dir;
use interflow_types::Url;
use interflow_types::data_file::has_word;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::objects::connector::Connector;
use crate::objects::error::{CREDENTIALS, ObjectError, Result};
use crate::objects::storage::ObjectAccess;
use crate::objects::url::{ObjectScheme, ObjectUrl};

/// A client of the bucket, or of the folder, which is created if it does not exist.
pub(crate) fn client(url: &ObjectUrl, access: &ObjectAccess) -> Result<Arc<dyn ObjectStore>> {
    let wrong = |e: object_store::Error| ObjectError::Url { url: url.to_string(), why: format!("{e}; {CREDENTIALS}") };
    check_endpoints(url, &access.variables)?;
    let retry = retry(access.retry_for);
    let http = Connector(Arc::clone(&access.client));
    // The clients have no trait in common.
    macro_rules! configured {
        ($builder:ident, $with_bucket:ident, $prefix:literal, $variables:expr) => {{
            let mut builder = $builder::new();
            for (name, value) in $variables {
                if let Some(key) = setting(name, value, $prefix) {
                    builder = builder.with_config(key, value);
                }
            }
            for (name, value) in &url.options {
                builder = builder.with_config(name.parse().map_err(wrong)?, value);
            }
            let builder = builder.$with_bucket(&url.bucket).with_retry(retry).with_http_connector(http);
            Arc::new(builder.build().map_err(wrong)?)
        }};
    }
    let variables = &access.variables;
    let client: Arc<dyn ObjectStore> = match url.scheme {
        ObjectScheme::S3 => {
            let all = shared_credentials(variables);
            configured!(AmazonS3Builder, with_bucket_name, "AWS_", all.iter().chain(variables))
        }
        ObjectScheme::Gcs => configured!(GoogleCloudStorageBuilder, with_bucket_name, "GOOGLE_", variables),
        ObjectScheme::Azure => configured!(MicrosoftAzureBuilder, with_container_name, "AZURE_", variables),
        ObjectScheme::File => {
            let folder = url.folder.clone().unwrap_or_default();
            // Recorded traffic is for its operator alone.
            create_private_dir(&folder).map_err(|e| ObjectError::Url {
                url: url.to_string(),
                why: format!("the folder cannot be created: {e}; give the user that Interflow runs as the right to"),
            })?;
            // What was reported as written must survive a power cut: the record deletes its own copy.
            Arc::new(LocalFileSystem::new_with_prefix(&folder).map_err(wrong)?.with_fsync(true))
        }
    };
    Ok(client)
}

/// Clients take it for granted that addresses of services are URLs.
fn check_endpoints(url: &ObjectUrl, variables: &[(String, String)]) -> Result<()> {
    let options = url.options.iter().filter(|(name, _)| name == "endpoint");
    let variables = variables.iter().filter(|(name, value)| {
        let is_address = ["ENDPOINT", "BASE_URL", "AUTHORITY_HOST", "FULL_URI"].iter().any(|part| name.contains(part));
        let prefix = match url.scheme {
            ObjectScheme::S3 => "AWS_",
            ObjectScheme::Gcs => "GOOGLE_",
            ObjectScheme::Azure => "AZURE_",
            ObjectScheme::File => return false,
        };
        is_address && name.starts_with(prefix) && !value.is_empty() && !name.starts_with("AWS_IGNORE")
    });
    for (name, value) in options.chain(variables) {
        // The value may hold a password: it is not shown.
        Url::split(value).map_err(|e| ObjectError::Url {
            url: url.to_string(),
            why: format!("`{name}` is not a URL such as https://storage.example.com:9000: {e}"),
        })?;
    }
    Ok(())
}

/// The metadata service that is asked for credentials because the environment names none.
pub(crate) fn metadata_service(url: &ObjectUrl, variables: &[(String, String)]) -> Option<&'static str> {
    let has = |names: &str| variables.iter().any(|(name, value)| has_word(names, name) && !value.is_empty());
    match url.scheme {
        ObjectScheme::S3 => {
            let has_keys = has("AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_WEB_IDENTITY_TOKEN_FILE \
                AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_SKIP_SIGNATURE \
                AWS_METADATA_ENDPOINT");
            (!has_keys && shared_credentials(variables).is_empty()).then_some("http://169.254.169.254/")
        }
        ObjectScheme::Gcs => {
            let has_keys = has("GOOGLE_SERVICE_ACCOUNT GOOGLE_SERVICE_ACCOUNT_PATH GOOGLE_SERVICE_ACCOUNT_KEY \
                GOOGLE_APPLICATION_CREDENTIALS GOOGLE_BEARER_TOKEN GOOGLE_SKIP_SIGNATURE");
            let home = variables.iter().find(|(n, _)| n == "HOME").map(|(_, home)| Path::new(home));
            let file = home.map(|home| home.join(".config/gcloud/application_default_credentials.json"));
            (!has_keys && !file.is_some_and(|f| f.exists())).then_some("http://metadata.google.internal/")
        }
        ObjectScheme::Azure | ObjectScheme::File => None,
    }
}

/// A variable as a setting of a client; those that it does not know are other programs', and an empty one is as if it were
/// not set.
fn setting<K: std::str::FromStr>(name: &str, value: &str, prefix: &str) -> Option<K> {
    (name.starts_with(prefix) && !value.is_empty()).then(|| name.to_ascii_lowercase().parse().ok()).flatten()
}

/// With jitter, so that replicas do not return together.
fn retry(whole: Duration) -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(5), base: 2.0 };
    RetryConfig { backoff, max_retries: 6, retry_timeout: whole }
}

/// The keys of the profile in `~/.aws/credentials`, under the names of the variables, which take precedence.
fn shared_credentials(variables: &[(String, String)]) -> Vec<(String, String)> {
    let variable = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    if variable("AWS_ACCESS_KEY_ID").is_some() || variable("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() {
        return Vec::new();
    }
    let file = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
    let file = file.or_else(|| variable("HOME").map(|home| Path::new(home).join(".aws/credentials")));
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    profile(&text, variable("AWS_PROFILE").unwrap_or("default"))
}

fn profile(text: &str, name: &str) -> Vec<(String, String)> {
    let (mut inside, mut found) = (false, Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            inside = section.trim() == name;
        } else if inside && let Some((key, value)) = line.split_once('=') {
            let key = key.trim();
            if ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region"].contains(&key) {
                let key = key.to_ascii_uppercase();
                let key = if key == "REGION" { "AWS_REGION".to_owned() } else { key };
                found.push((key, value.trim().to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_named_profile_are_read() {
        let text = "[default]\naws_access_key_id = A\n\n[team]\naws_access_key_id=B\naws_secret_access_key = s=\nregion = eu-west-1\nother = 1\n";
        assert_eq!(profile(text, "default"), [("AWS_ACCESS_KEY_ID".to_owned(), "A".to_owned())]);
        let team = profile(text, "team");
        assert_eq!(team.len(), 3);
        assert_eq!(team[1], ("AWS_SECRET_ACCESS_KEY".to_owned(), "s=".to_owned()));
        assert_eq!(team[2], ("AWS_REGION".to_owned(), "eu-west-1".to_owned()));
        assert!(profile(text, "absent").is_empty());
    }
}
