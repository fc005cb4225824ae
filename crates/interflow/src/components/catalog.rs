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
    let Some(key) = &config.key else {
        let unsigned = config.url.is_none() && config.pin.is_none();
        return if unsigned {
            Ok(None)
        } else {
            Err("quota.catalog: set key, by which a catalog is signed".to_owned())
        };
    };
    let source = CatalogSource::new(key, config.pin.as_deref())?;
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
