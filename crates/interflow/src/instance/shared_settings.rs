//! Settings that all replicas of a fleet share. The files of the data directory stay what every component reads and
//! writes; this keeps them equal to the newest revisions in the database of the shared store.
//!
//! A change of a file becomes a revision once a reload has accepted it. A revision of another replica is written to the
//! file and reloaded; if this replica refuses it, the former text is written back, and the refusal is reported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interflow_admin::{LastEditors, ReloadFn};
use interflow_files::{FileAccess, write_atomic};
use interflow_host::data_dir::DataDir;
use interflow_store::shared::{NewSetting, SettingRevision, SettingStatus, SettingsStore};
use interflow_store::shared_url;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::CliError;
use crate::components::store_tls;
use crate::instance::config::{InterflowConfig, SharedSetting};

/// How often the files and the database are compared without an announcement.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after the database did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// What this replica last had in common with the database.
const MARKS_FILE: &str = "shared-settings.json";

/// The revision that a file had when it was last equal to the database, and the hash of its text then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    revision: i64,
    sha256: String,
}

/// Keeps the shared files of one replica and the database equal.
pub struct SettingsSync {
    store: SettingsStore,
    files: BTreeMap<String, PathBuf>,
    marks: BTreeMap<String, Mark>,
    marks_file: PathBuf,
    /// Hashes of texts of this replica that a reload refused.
    refused: BTreeMap<String, String>,
    replica: String,
    /// Who changes settings over the API of this replica.
    editors: Arc<LastEditors>,
}

/// The shared settings by name, with their files.
pub fn shared_files(config: &InterflowConfig, home: &DataDir) -> BTreeMap<String, PathBuf> {
    let path = |setting: &SharedSetting| match setting {
        SharedSetting::Approvals => home.join(&config.approvals.file),
        SharedSetting::Keys => home.join(&config.keys.file),
        SharedSetting::Policy => home.join(Path::new("policy.toml")),
        SharedSetting::Rules => home.join(Path::new("rules.yaml")),
        SharedSetting::Secrets => home.join(&config.approvals.secrets),
    };
    config.fleet.share.iter().map(|setting| (setting.as_str().to_owned(), path(setting))).collect()
}

impl SettingsSync {
    /// Connects, and writes the newest revisions to the files, before any component reads them. `None` if the store is
    /// not shared, or nothing else is.
    ///
    /// # Errors
    /// The database does not answer, or a file cannot be written.
    pub async fn start(config: &InterflowConfig, home: &DataDir) -> Result<Option<Self>, CliError> {
        let Some(url) = shared_url(&config.record)?.filter(|_| !config.fleet.share.is_empty()) else {
            return Ok(None);
        };
        config.fleet.check(&config.approvals)?;
        let marks_file = home.join(Path::new(MARKS_FILE));
        let marks = match std::fs::read(&marks_file) {
            // A damaged file is like none: files that differ from the database are then kept aside.
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(_) => BTreeMap::new(),
        };
        let store = SettingsStore::open(&url, store_tls::client).await?;
        let files = shared_files(config, home);
        let refused = BTreeMap::new();
        let mut this = Self {
            store,
            files,
            marks,
            marks_file,
            refused,
            replica: config.fleet.replica_name(),
            editors: Arc::default(),
        };
        for (newest, content) in this.store.newest().await? {
            let Some(path) = this.files.get(&newest.name).cloned() else { continue };
            if this.is_news(&newest) {
                this.set_aside_conflict(&newest.name, &path, &content)?;
                write_file(&path, &content)?;
                this.mark(&newest.name, newest.revision, &content);
            }
        }
        this.save_marks();
        Ok(Some(this))
    }

    /// Names these people as the authors of what they change.
    pub fn set_editors(&mut self, editors: Arc<LastEditors>) {
        self.editors = editors;
    }

    /// Follows changes on both sides until the process ends.
    pub async fn run(mut self, reload: ReloadFn) {
        loop {
            let mut announcements = match self.store.announcements().await {
                Ok(announcements) => announcements,
                Err(e) => {
                    tracing::warn!("shared settings wait: {e}");
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            loop {
                if let Err(e) = self.look(&reload).await {
                    tracing::warn!("shared settings wait: {e}");
                    tokio::time::sleep(RETRY_DELAY).await;
                    break;
                }
                tokio::select! {
                    going_on = announcements.next() => if !going_on { break },
                    () = tokio::time::sleep(LOOK_INTERVAL) => {}
                }
            }
        }
    }

    /// Takes over what is new in the database, then publishes what is new in the files.
    async fn look(&mut self, reload: &ReloadFn) -> Result<(), CliError> {
        let news: Vec<_> = self.store.newest().await?.into_iter().filter(|(newest, _)| self.is_news(newest)).collect();
        for (newest, content) in news {
            self.take_over(&newest, &content, reload).await?;
        }
        for (name, path) in self.files.clone() {
            self.publish_change(&name, &path, reload).await?;
        }
        Ok(())
    }

    fn is_news(&self, newest: &SettingRevision) -> bool {
        self.files.contains_key(&newest.name)
            && self.marks.get(&newest.name).is_none_or(|mark| mark.revision < newest.revision)
    }

    /// Writes a revision to its file and reloads; one that is refused is undone.
    async fn take_over(&mut self, newest: &SettingRevision, content: &[u8], reload: &ReloadFn) -> Result<(), CliError> {
        let (name, revision) = (&newest.name, newest.revision);
        let Some(path) = self.files.get(name).cloned() else { return Ok(()) };
        self.set_aside_conflict(name, &path, content)?;
        let former = read_file(&path)?;
        let mut refused = None;
        if former.as_deref() != Some(content) {
            write_file(&path, content)?;
            if let Err(error) = reload().await {
                tracing::error!("revision {revision} of the shared {name} by {} is refused: {error}", newest.author);
                match &former {
                    Some(former) => write_file(&path, former)?,
                    None => std::fs::remove_file(&path).map_err(|e| file_error(&path, &e))?,
                }
                // As before; an error was there before, too, and is in the log.
                let _ = reload().await;
                refused = Some(error);
            } else {
                tracing::info!("revision {revision} of the shared {name} by {} is in force", newest.author);
            }
        }
        // A refused one is not tried again: the next revision is.
        let kept = if refused.is_some() { former.unwrap_or_default() } else { content.to_owned() };
        self.mark(name, revision, &kept);
        self.save_marks();
        self.report(name, revision, refused).await
    }

    /// Makes a file that was changed here the next revision, if a reload accepts it.
    async fn publish_change(&mut self, name: &str, path: &Path, reload: &ReloadFn) -> Result<(), CliError> {
        let Some(content) = read_file(path)? else { return Ok(()) };
        let (hash, mark) = (sha256(&content), self.marks.get(name).cloned().unwrap_or_default());
        // A text that was refused is tried again when it changes.
        if hash == mark.sha256 || self.refused.get(name) == Some(&hash) {
            return Ok(());
        }
        if let Err(error) = reload().await {
            tracing::warn!("the change of the shared {name} stays here until it is mended: {error}");
            self.refused.insert(name.to_owned(), hash);
            return Ok(());
        }
        let author =
            self.editors.of(name).map_or_else(|| self.replica.clone(), |who| format!("{who} ({})", self.replica));
        let new = NewSetting { name, base: mark.revision, content: &content, author: &author, restores: None };
        match self.store.publish(&new).await? {
            Some(revision) => {
                tracing::info!("the shared {name} has revision {revision}, made here");
                self.mark(name, revision, &content);
                self.save_marks();
                self.report(name, revision, None).await
            }
            // Another replica was first: the next look finds its revision, and this text is kept aside then.
            None => Ok(()),
        }
    }

    /// Keeps a text that was changed here and not published in a file of its own, before it is overwritten.
    fn set_aside_conflict(&self, name: &str, path: &Path, content: &[u8]) -> Result<(), CliError> {
        let Some(here) = read_file(path)? else { return Ok(()) };
        let unpublished = self.marks.get(name).is_none_or(|mark| mark.sha256 != sha256(&here));
        if here == content || !unpublished {
            return Ok(());
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(".conflict");
        let aside = PathBuf::from(aside);
        write_file(&aside, &here)?;
        tracing::warn!(
            "{} was changed here and by another replica: theirs is in force, and yours is in {}",
            path.display(),
            aside.display()
        );
        Ok(())
    }

    async fn report(&self, name: &str, revision: i64, refused: Option<String>) -> Result<(), CliError> {
        let at = interflow_types::Timestamp::now();
        let status = SettingStatus { replica: self.replica.clone(), name: name.to_owned(), revision, at, refused };
        Ok(self.store.report(&status).await?)
    }

    fn mark(&mut self, name: &str, revision: i64, content: &[u8]) {
        self.marks.insert(name.to_owned(), Mark { revision, sha256: sha256(content) });
    }

    fn save_marks(&self) {
        let text = serde_json::to_vec_pretty(&self.marks).unwrap_or_default();
        if let Err(e) = write_atomic(&self.marks_file, &text, FileAccess::Private) {
            tracing::warn!("{}: {e}", self.marks_file.display());
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn file_error(path: &Path, error: &std::io::Error) -> CliError {
    format!("{}: {error}", path.display()).into()
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, CliError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(file_error(path, &e)),
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    write_atomic(path, bytes, FileAccess::Private).map_err(|e| file_error(path, &e))
}
