//! Budgets that outlive the process: what was used today and this month is kept in a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// How often the file is written while something changes.
const EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Budgets {
    /// Name, number of the period, sum.
    budgets: Vec<(String, u64, u64)>,
}

/// The file, and what stands in it.
#[derive(Debug)]
pub struct Saved {
    path: PathBuf,
    written: Mutex<Budgets>,
}

impl Saved {
    /// Reads the file and puts its sums back into the counters of this process; from now on they are written to it. A file
    /// that cannot be read is set aside, loudly: the budgets begin anew then.
    pub fn keep(limits: &Arc<Limits>, path: &Path) -> Arc<Self> {
        let budgets = read(path).unwrap_or_else(|e| {
            let aside = path.with_extension("broken");
            let _ = fs::rename(path, &aside);
            tracing::error!(
                "limits: {} cannot be read ({e}); it is set aside as {}, and budgets begin anew",
                path.display(),
                aside.display()
            );
            Budgets::default()
        });
        limits.memory().with(|counters| {
            for (name, period, sum) in &budgets.budgets {
                counters.restore(name.clone(), *period, *sum);
            }
        });
        let saved = Arc::new(Self { path: path.to_owned(), written: Mutex::new(budgets) });
        let (weak, own) = (Arc::downgrade(limits), Arc::clone(&saved));
        let thread = std::thread::Builder::new().name("budgets".into()).spawn(move || follow(&weak, &own));
        if let Err(e) = thread {
            tracing::error!("limits: no thread to keep budgets ({e}); they are written at the end only");
        }
        saved
    }

    /// Writes the file when something has changed.
    pub fn write(&self, limits: &Limits) {
        let mut now = limits.memory().with(|counters| Budgets {
            budgets: counters.budgets().map(|(name, period, sum)| (name.to_owned(), period, sum)).collect(),
        });
        now.budgets.sort();
        let mut written = self.written.lock();
        if *written == now {
            return;
        }
        match write(&self.path, &now) {
            Ok(()) => *written = now,
            Err(e) => tracing::error!("limits: budgets cannot be kept in {}: {e}", self.path.display()),
        }
    }
}

fn follow(limits: &Weak<Limits>, saved: &Saved) {
    loop {
        std::thread::sleep(EVERY);
        let Some(limits) = limits.upgrade() else { return };
        saved.write(&limits);
    }
}

fn read(path: &Path) -> Result<Budgets, String> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Budgets::default()),
        Err(e) => Err(e.to_string()),
    }
}

/// Whole or not at all.
fn write(path: &Path, budgets: &Budgets) -> io::Result<()> {
    let fresh = path.with_extension(format!("new.{}", std::process::id()));
    fs::write(&fresh, serde_json::to_vec(budgets)?)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{QuotaConfig, RuleConfig};
    use crate::limits::Estimate;
    use crate::prices::Tokens;
    use crate::rules::{Quota, Subject};

    fn limits() -> Arc<Limits> {
        let allow = Quota { tokens_per_month: Some(100), ..Quota::default() };
        let rule = RuleConfig { name: "all".into(), allow, ..RuleConfig::default() };
        Limits::new(&QuotaConfig { rule: vec![rule], ..QuotaConfig::default() }, Path::new("/")).unwrap()
    }

    fn subject() -> Subject {
        Subject {
            key: None,
            user: None,
            route: None,
            provider: "openai".into(),
            model: None,
            client: [127, 0, 0, 1].into(),
        }
    }

    #[tokio::test]
    async fn a_budget_goes_on_after_a_restart_and_a_broken_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("budgets.json");
        let first = limits();
        let saved = Saved::keep(&first, &path);
        assert!(!path.exists());
        let grant = first.begin(subject(), Estimate { input: 10, max_output: Some(0) }).await.ok().unwrap();
        grant.settle(&Tokens { input: 70, ..Tokens::default() });
        saved.write(&first);
        let second = limits();
        Saved::keep(&second, &path);
        assert_eq!(second.read(&subject()).await.unwrap()[0].used, 70.0);
        fs::write(&path, "{").unwrap();
        let third = limits();
        Saved::keep(&third, &path);
        assert_eq!(third.read(&subject()).await.unwrap()[0].used, 0.0);
        assert!(dir.path().join("budgets.broken").exists());
    }
}
