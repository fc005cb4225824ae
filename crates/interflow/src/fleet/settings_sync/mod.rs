//! Settings that all replicas of a fleet share. The files of the data directory stay what every component reads and
//! writes; this keeps them equal to the newest revisions in the database of the shared store.
//!
//! A change of a file becomes a revision once a reload has accepted it. A revision of another replica is written to the
//! file and reloaded; if this replica refuses it, the former text is written back, and the refusal is reported. Changes
//! that two replicas made at once are merged.

mod merge;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use interflow_admin::settings::SharedSettings;
use interflow_admin::{LastEditors, ReloadFn};
use interflow_files::{FileAccess, FileLock, optional, write_atomic};
use interflow_fleet::{NewSetting, PostgresSettings, shared_url};
use interflow_host::data_dir::DataDir;
use interflow_store::shared_state::{SettingRevision, SettingStatus};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::components::MODE_FILE;
use crate::fleet::access::row_key;
use crate::fleet::store_tls;
use crate::instance::config::{InterflowConfig, SharedSetting};
use crate::instance::reload::ReloadStatus;
use crate::instance::settings::diff::diff_texts;
use crate::{CliError, Result};

/// How often the files and the database are compared without an announcement.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after the database did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// What this replica last had in common with the database.
const MARKS_FILE: &str = "shared-settings.json";
/// The mode of approvals that was set while they run, which goes with their rules. A setting of its own: an earlier version does
/// not know it.
const MODE_SETTING: &str = "approvals-mode";
/// How many earlier revisions a start tries if the newest one cannot be used.
const MAX_EARLIER: i64 = 20;

/// The revision that a file had when it was last equal to the database, and the hash of its text then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    revision: i64,
    sha256: String,
    /// Whether the text of this revision was refused, and the file has another one. The next start tries it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    refused: bool,
}

/// A revision that a start has written to its file, and what else could be there.
struct StartRevision {
    name: String,
    path: PathBuf,
    revision: i64,
    content: Vec<u8>,
}

/// An earlier revision that a start tries.
struct StartTrial {
    /// The index in [`SettingsSync::written`].
    at: usize,
    /// Earlier texts with their revisions, the newest last.
    earlier: Vec<(i64, Vec<u8>)>,
    /// The revision that is in the file now.
    current: i64,
}

/// Keeps the shared files of one replica and the database equal.
pub struct SettingsSync {
    store: PostgresSettings,
    files: BTreeMap<String, PathBuf>,
    marks: BTreeMap<String, Mark>,
    marks_file: PathBuf,
    /// Hashes of texts of this replica that a reload refused, and how many reloads had succeeded then.
    refused: BTreeMap<String, (String, u64)>,
    /// Revisions that wait because the configuration cannot be reloaded for another reason, likewise.
    waiting: BTreeMap<String, (i64, u64)>,
    /// Revisions that were active here and are refused in the database: each is published again once.
    unproven: BTreeSet<(String, i64)>,
    /// What the start wrote.
    written: Vec<StartRevision>,
    trial: Option<StartTrial>,
    /// Whether the revisions of the start have been reported.
    has_reported: bool,
    reloads: Arc<ReloadStatus>,
    replica: String,
    /// Who changes settings over the API of this replica.
    editors: Arc<LastEditors>,
}

/// The shared settings by name, with their files.
pub fn shared_files(config: &InterflowConfig, home: &DataDir) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    if config.fleet.share.contains(&SharedSetting::Approvals) {
        files.insert(MODE_SETTING.to_owned(), home.join(Path::new(MODE_FILE)));
    }
    let path = |setting: &SharedSetting| match setting {
        SharedSetting::Approvals => home.join(&config.approvals.file),
        SharedSetting::Keys => home.join(&config.keys.file),
        SharedSetting::Policy => home.join(Path::new("policy.toml")),
        SharedSetting::Rules => home.join(Path::new("rules.yaml")),
        SharedSetting::Secrets => home.join(&config.approvals.secrets),
    };
    files.extend(config.fleet.share.iter().map(|setting| (setting.as_str().to_owned(), path(setting))));
    files
}

impl SettingsSync {
    /// Connects, and writes the newest revisions to the files, before any component reads them. `None` if the store is
    /// not shared, or nothing else is.
    ///
    /// # Errors
    /// The database does not answer, or a file cannot be written.
    pub async fn start(config: &InterflowConfig, home: &DataDir, reloads: &Arc<ReloadStatus>) -> Result<Option<Self>> {
        let Some(url) = shared_url(&config.record)?.filter(|_| !config.fleet.share.is_empty()) else {
            return Ok(None);
        };
        config.fleet.check(&config.approvals)?;
        let marks_file = home.join(Path::new(MARKS_FILE));
        // A damaged file is like none: files that differ from the database are then kept aside.
        let marks = std::fs::read(&marks_file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let marks: BTreeMap<String, Mark> = marks.unwrap_or_default();
        let mut this = Self {
            store: PostgresSettings::open(&url, store_tls::client, row_key(home)?).await?,
            files: shared_files(config, home),
            marks,
            marks_file,
            refused: BTreeMap::new(),
            waiting: BTreeMap::new(),
            unproven: BTreeSet::new(),
            written: Vec::new(),
            trial: None,
            has_reported: false,
            reloads: Arc::clone(reloads),
            replica: config.fleet.replica_name(),
            editors: Arc::default(),
        };
        for newest in this.store.newest().await? {
            let Some(path) = this.files.get(&newest.name).cloned() else { continue };
            // Another version of the program may accept what the former one refused.
            let was_refused = this.marks.get(&newest.name).is_some_and(|mark| mark.refused);
            if !this.is_news(&newest) && !was_refused {
                continue;
            }
            let Some(content) = this.store.content(&newest.name, newest.revision).await? else { continue };
            let _alone = lock_file(&path)?;
            if let Some(here) = read_file(&path)?.filter(|here| this.is_unpublished(&newest.name, here, &content)) {
                set_aside(&path, &here)?;
            }
            write_file(&path, &content)?;
            this.written.push(StartRevision { name: newest.name, path, revision: newest.revision, content });
        }
        Ok(Some(this))
    }

    /// What the API shows and changes of them.
    pub fn for_admin(&self) -> SharedSettings {
        SharedSettings {
            store: Arc::new(self.store.clone()),
            names: self.files.keys().cloned().collect(),
            replica: self.replica.clone(),
            diff: diff_texts,
        }
    }

    /// Names these people as the authors of what they change.
    pub fn set_editors(&mut self, editors: Arc<LastEditors>) {
        self.editors = editors;
    }

    /// Called while the components cannot be built: replaces one of the revisions that the start has written by an
    /// earlier one. False if there is nothing left to try; the newest revisions are in the files then.
    ///
    /// # Errors
    /// The database does not answer, or a file cannot be written.
    pub async fn try_earlier(&mut self) -> Result<bool> {
        loop {
            let at = match &mut self.trial {
                None => 0,
                Some(trial) => {
                    let Some(written) = self.written.get(trial.at) else { return Ok(false) };
                    if let Some((revision, content)) = trial.earlier.pop() {
                        write_file(&written.path, &content)?;
                        trial.current = revision;
                        return Ok(true);
                    }
                    // It is not the reason.
                    write_file(&written.path, &written.content)?;
                    trial.at + 1
                }
            };
            let Some(written) = self.written.get(at) else { return Ok(false) };
            let mut earlier = self.store.before(&written.name, written.revision, MAX_EARLIER).await?;
            earlier.reverse();
            self.trial = Some(StartTrial { at, earlier, current: written.revision });
        }
    }

    /// Called when the components have been built: from now on, what is in the files is what this replica has.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn accept_start(&mut self, refusal: Option<&str>) -> Result<()> {
        for (at, written) in self.written.iter().enumerate() {
            let refused_for = self.trial.as_ref().filter(|trial| trial.at == at).map(|trial| trial.current);
            if let Some(current) = refused_for {
                tracing::error!(
                    "revision {} of the shared {} is refused, and revision {current} stays active: {}",
                    written.revision,
                    written.name,
                    refusal.unwrap_or_default()
                );
            }
            let content = read_file(&written.path)?.unwrap_or_default();
            let mark = Mark { revision: written.revision, sha256: sha256(&content), refused: refused_for.is_some() };
            self.marks.insert(written.name.clone(), mark);
        }
        self.save_marks();
        Ok(())
    }

    /// Follows changes on both sides until the process ends.
    pub async fn run(mut self, reload: ReloadFn) {
        loop {
            let mut announcements = match self.store.announcements().await {
                Ok(announcements) => announcements,
                Err(e) => {
                    tracing::warn!(error = %e, "cannot follow the shared settings; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            loop {
                if let Err(e) = self.look(&reload).await {
                    tracing::warn!(error = %e, "cannot follow the shared settings; retrying");
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
    async fn look(&mut self, reload: &ReloadFn) -> Result<()> {
        if !self.has_reported {
            for written in &self.written {
                let refused = self.marks.get(&written.name).is_some_and(|mark| mark.refused);
                let why = refused.then(|| "it cannot be used at the start: see the log of this replica".to_owned());
                self.report(&written.name, written.revision, why).await?;
            }
            self.has_reported = true;
        }
        let newest = self.store.newest().await?;
        for newest in &newest {
            if self.is_news(newest) && !self.has_to_wait(newest) {
                self.take_over(newest, reload).await?;
            }
        }
        for (name, path) in self.files.clone() {
            let accepted = newest.iter().find(|r| r.name == name).map_or(0, |r| r.revision);
            // What this replica has is refused in the database, as it was written under another key.
            if let Some(mark) = self.marks.get(&name).filter(|mark| mark.revision > accepted)
                && self.unproven.insert((name.clone(), mark.revision))
            {
                tracing::warn!(
                    "the shared {name} of this replica is published again: its revision is not accepted any more"
                );
                self.publish(&name, &path, reload, true).await?;
            } else {
                self.publish(&name, &path, reload, false).await?;
            }
        }
        Ok(())
    }

    fn is_news(&self, newest: &SettingRevision) -> bool {
        self.files.contains_key(&newest.name)
            && self.marks.get(&newest.name).is_none_or(|mark| mark.revision < newest.revision)
    }

    /// Whether this revision was tried, and nothing has become better since.
    fn has_to_wait(&self, newest: &SettingRevision) -> bool {
        self.waiting.get(&newest.name) == Some(&(newest.revision, self.reloads.succeeded()))
    }

    /// Writes a revision to its file and reloads; one that is refused is undone.
    async fn take_over(&mut self, newest: &SettingRevision, reload: &ReloadFn) -> Result<()> {
        let (name, revision) = (&newest.name, newest.revision);
        let (Some(path), Some(content)) = (self.files.get(name).cloned(), self.store.content(name, revision).await?)
        else {
            return Ok(());
        };
        let base = match self.marks.get(name) {
            Some(mark) if mark.revision > 0 => self.store.content(name, mark.revision).await?,
            _ => None,
        };
        // Not before: a change that comes while the database is asked must be seen.
        let former = read_file(&path)?;
        let unpublished = former.as_deref().filter(|here| self.is_unpublished(name, here, &content));
        let merged = unpublished.and_then(|here| merge::merge(name, &base.unwrap_or_default(), &content, here));
        if former.as_deref() == Some(&content[..]) {
            return self.accept(name, revision, &content).await;
        }
        let mut here = former.clone();
        if let Some(merged) = &merged {
            if !replace(&path, here.as_deref(), Some(merged))? {
                // It has changed since it was read: the next look begins with that.
                return Ok(());
            }
            if reload().await.is_ok() {
                tracing::info!(
                    "revision {revision} of the shared {name} by {} is merged with the change here",
                    newest.author
                );
                // The file differs from the revision: the merged text is published next.
                return self.accept(name, revision, &content).await;
            }
            here = Some(merged.clone());
        }
        if !replace(&path, here.as_deref(), Some(&content))? {
            return Ok(());
        }
        let Err(error) = reload().await else {
            if let Some(here) = unpublished {
                set_aside(&path, here)?;
            }
            tracing::info!("revision {revision} of the shared {name} by {} is active", newest.author);
            return self.accept(name, revision, &content).await;
        };
        if !replace(&path, Some(&content), former.as_deref())? {
            return Ok(());
        }
        if reload().await.is_err() {
            // Whatever is wrong, it is not this revision alone. A reload that succeeds makes it be tried again.
            tracing::warn!("revision {revision} of the shared {name} waits until the configuration can be reloaded");
            self.waiting.insert(name.clone(), (revision, self.reloads.succeeded()));
            let why = format!("waits until the configuration of this replica can be reloaded: {error}");
            return self.report(name, revision, Some(why)).await;
        }
        tracing::error!("revision {revision} of the shared {name} by {} is refused: {error}", newest.author);
        // A change that was made here and is not published yet becomes the next revision.
        let digest =
            self.marks.get(name).map_or_else(|| sha256(&former.unwrap_or_default()), |mark| mark.sha256.clone());
        self.marks.insert(name.clone(), Mark { revision, sha256: digest, refused: true });
        self.save_marks();
        self.report(name, revision, Some(error)).await
    }

    async fn accept(&mut self, name: &str, revision: i64, content: &[u8]) -> Result<()> {
        self.waiting.remove(name);
        self.marks.insert(name.to_owned(), Mark { revision, sha256: sha256(content), refused: false });
        self.save_marks();
        self.report(name, revision, None).await
    }

    /// Makes a file that was changed here the next revision, if a reload accepts it; with `anyway`, an unchanged one too.
    async fn publish(&mut self, name: &str, path: &Path, reload: &ReloadFn, anyway: bool) -> Result<()> {
        if self.waiting.contains_key(name) {
            // The revision that waits is merged with it first.
            return Ok(());
        }
        let Some(content) = read_file(path)? else { return Ok(()) };
        let (hash, mark) = (sha256(&content), self.marks.get(name).cloned().unwrap_or_default());
        // A text that was refused is tried again when it changes, or when what else was wrong is mended.
        let attempt = (hash, self.reloads.succeeded());
        if (attempt.0 == mark.sha256 && !anyway) || self.refused.get(name) == Some(&attempt) {
            return Ok(());
        }
        if let Err(error) = reload().await {
            tracing::warn!("the change of the shared {name} stays here until it is mended: {error}");
            self.refused.insert(name.to_owned(), attempt);
            return Ok(());
        }
        self.refused.remove(name);
        let author =
            self.editors.of(name).map_or_else(|| self.replica.clone(), |who| format!("{who} ({})", self.replica));
        let new = NewSetting { name, base: mark.revision, content: &content, author: &author, restores: None };
        match self.store.publish(&new).await? {
            Some(revision) => {
                tracing::info!("the shared {name} has revision {revision}, made here");
                self.accept(name, revision, &content).await
            }
            // Another replica was first: the next look merges both.
            None => Ok(()),
        }
    }

    /// Whether a text was changed here since it was last equal to the database, to something else than this.
    fn is_unpublished(&self, name: &str, here: &[u8], newest: &[u8]) -> bool {
        here != newest && self.marks.get(name).is_none_or(|mark| mark.sha256 != sha256(here))
    }

    async fn report(&self, name: &str, revision: i64, refused: Option<String>) -> Result<()> {
        let at = interflow_types::Timestamp::now();
        let status = SettingStatus { replica: self.replica.clone(), name: name.to_owned(), revision, at, refused };
        Ok(self.store.report(&status).await?)
    }

    fn save_marks(&self) {
        let text = serde_json::to_vec_pretty(&self.marks).unwrap_or_default();
        if let Err(e) = write_atomic(&self.marks_file, &text, FileAccess::Private) {
            tracing::warn!("{}: {e}", self.marks_file.display());
        }
    }
}

/// Keeps a text that was changed here in a file of its own when that of another replica takes its place.
fn set_aside(path: &Path, here: &[u8]) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".conflict");
    let aside = PathBuf::from(aside);
    write_file(&aside, here)?;
    tracing::warn!(
        "{} was changed here and by another replica: theirs is active, and yours is in {}",
        path.display(),
        aside.display()
    );
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn file_error(path: &Path, error: &std::io::Error) -> CliError {
    format!("{}: {error}", path.display()).into()
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>> {
    optional(std::fs::read(path)).map_err(|e| file_error(path, &e))
}

/// For reading a file and writing it without a change by another process in between.
fn lock_file(path: &Path) -> Result<FileLock> {
    FileLock::for_edit(path).map_err(|e| file_error(path, &e))
}

/// Gives a file another text, or removes it, if it has this one; returns whether it had.
fn replace(path: &Path, former: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
    let _alone = lock_file(path)?;
    if read_file(path)?.as_deref() != former {
        return Ok(false);
    }
    match new {
        Some(new) => write_file(path, new)?,
        None => std::fs::remove_file(path).map_err(|e| file_error(path, &e))?,
    }
    Ok(true)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic(path, bytes, FileAccess::Private).map_err(|e| file_error(path, &e))
}
