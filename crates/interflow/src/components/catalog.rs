//! A newer catalog of models than the built-in one: kept in the data directory, and fetched once a day.

use std::sync::Arc;
use std::time::Duration;

use interflow_files::{FileAccess, write_atomic};
use interflow_host::data_dir::DataDir;
use interflow_limits::CatalogConfig;
use interflow_models::CatalogSource;
use interflow_types::{Body, Headers, HttpClient, HttpVersion, Method, Request, RequestHead, Timestamp, Url};

/// The catalog that was fetched last, in the data directory.
pub const FILE: &str = "catalog.signed";
const DAY: Duration = Duration::from_secs(86_400);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(3_600);
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_FILE: usize = 8 << 20;

/// Uses the catalog in the data directory, if the configuration takes one.
///
/// # Errors
/// The configuration is wrong. A file that is not taken is only reported.
pub fn load(config: &CatalogConfig, home: &DataDir) -> Result<Option<CatalogSource>, String> {
    let Some(source) = config.source()? else { return Ok(None) };
    if let Ok(file) = std::fs::read(home.join(FILE)) {
        match source.open(&file, Timestamp::now()) {
            Ok(catalog) => interflow_models::install(catalog),
            Err(e) => tracing::warn!("{FILE} is not used: {e}"),
        }
    }
    Ok(Some(source))
}

/// Fetches a newer catalog now and each day, if the configuration names where.
///
/// # Errors
/// The configuration is wrong.
pub fn start(config: &CatalogConfig, home: &DataDir, client: Arc<dyn HttpClient>) -> Result<(), String> {
    let (source, home) = (load(config, home)?, home.clone());
    let Some((source, url)) = source.zip(config.url.clone()) else { return Ok(()) };
    tokio::spawn(async move {
        loop {
            let fetched = tokio::time::timeout(TIMEOUT, fetch(&*client, &url)).await;
            let fetched = fetched.unwrap_or_else(|_| Err("the answer took too long".to_owned()));
            let taken = fetched.and_then(|file| take(&source, &home, &file));
            if let Err(e) = &taken {
                let used = interflow_models::current().header().as_of.clone();
                tracing::warn!(
                    "the catalog of models at quota.catalog.url is not used: {e}; the one as of {used} stays"
                );
            }
            tokio::time::sleep(if taken.is_ok() { DAY } else { RETRY }).await;
        }
    });
    Ok(())
}

fn take(source: &CatalogSource, home: &DataDir, file: &[u8]) -> Result<(), String> {
    interflow_models::install(source.open(file, Timestamp::now())?);
    write_atomic(&home.join(FILE), file, FileAccess::Private).map_err(|e| format!("{FILE} cannot be written: {e}"))
}

async fn fetch(client: &dyn HttpClient, url: &str) -> Result<Vec<u8>, String> {
    let (scheme, authority, path) = Url::split(url).map_err(|e| e.to_string())?;
    let url = Url { scheme, authority, path: if path.is_empty() { "/" } else { path }.into() };
    let head =
        RequestHead { method: Method::GET, url, version: HttpVersion::Http11, headers: Headers::new(), protocol: None };
    let response = client.send(Request { head, body: Body::Empty }).await.map_err(|e| e.to_string())?;
    if !response.head.status.is_success() {
        return Err(format!("the server answered {}", response.head.status));
    }
    let (body, _) = response.body.collect(MAX_FILE).await.map_err(|_| "the answer cannot be read".to_owned())?;
    Ok(body.to_vec())
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use interflow_types::{Response, ResponseFuture, StatusCode};

    use super::*;

    /// Serves this file, or 404 without one.
    struct Origin(Option<Vec<u8>>);

    impl HttpClient for Origin {
        fn send(&self, request: Request) -> ResponseFuture<'_> {
            assert_eq!(request.head.url.to_string(), "https://mirror.test/catalog");
            let (status, body) =
                self.0.clone().map_or((StatusCode::NOT_FOUND, Vec::new()), |body| (StatusCode::OK, body));
            Box::pin(async move { Ok(Response::full(status, "application/octet-stream", body)) })
        }
    }

    #[tokio::test]
    async fn a_signed_catalog_is_fetched_kept_and_used_without_the_network() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let pair = Ed25519KeyPair::generate().unwrap();
        let mut file = include_bytes!("../../../interflow-models/data/catalog.zst").to_vec();
        let signature = pair.sign(&file);
        file.extend_from_slice(signature.as_ref());
        let config = CatalogConfig { key: Some(hex::encode(pair.public_key())), ..CatalogConfig::default() };
        let source = load(&config, &home).unwrap().unwrap();

        let url = "https://mirror.test/catalog";
        assert!(fetch(&Origin(None), url).await.unwrap_err().contains("404"));
        let fetched = fetch(&Origin(Some(file.clone())), url).await.unwrap();
        let before = interflow_models::current();
        take(&source, &home, &fetched).unwrap();
        assert!(!Arc::ptr_eq(&before, &interflow_models::current()));
        assert_eq!(std::fs::read(home.join(FILE)).unwrap(), file);
        let used = interflow_models::current();
        load(&config, &home).unwrap();
        assert!(!Arc::ptr_eq(&used, &interflow_models::current()), "it is read from the data directory");

        // What is not taken leaves the file and the catalog in use.
        let used = interflow_models::current();
        file[0] ^= 1;
        assert!(take(&source, &home, &file).unwrap_err().contains("signature"));
        std::fs::write(home.join(FILE), &file).unwrap();
        load(&config, &home).unwrap();
        assert!(Arc::ptr_eq(&used, &interflow_models::current()));
    }

    #[test]
    fn a_catalog_without_a_key_to_check_it_by_is_an_error_of_the_configuration() {
        let home = DataDir::find(Some(std::path::Path::new("/nowhere"))).unwrap();
        assert!(load(&CatalogConfig::default(), &home).unwrap().is_none());
        let config = CatalogConfig { url: Some("https://mirror.test/".into()), ..CatalogConfig::default() };
        assert!(load(&config, &home).unwrap_err().contains("quota.catalog.key: it is missing"));
        let config = CatalogConfig { url: Some("nonsense".into()), ..config };
        assert!(load(&config, &home).unwrap_err().contains("quota.catalog.url"));
        let config = CatalogConfig { key: Some("abc".into()), ..CatalogConfig::default() };
        assert!(load(&config, &home).unwrap_err().contains("quota.catalog.key"));
    }
}
