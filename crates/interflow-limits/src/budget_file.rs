//! Persists daily and monthly budgets to a file so that they survive a restart. Rates and concurrency slots are not
//! kept: they recover within seconds or minutes by themselves.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use interflow_files::{FileAccess, optional, write_atomic};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::admission::UsageLimiter;

/// Interval between writes while counters change. After a crash, at most this much usage is missing from the budgets.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedBudgets {
    /// Counter name, period number (days or months, see `BudgetPeriod::period_at`), and sum in tokens or millionths
    /// of a dollar.
    budgets: Vec<(String, u64, u64)>,
}

/// The budget file and its last written content.
#[derive(Debug)]
pub struct BudgetFile {
    path: PathBuf,
    written: Mutex<SavedBudgets>,
}

impl BudgetFile {
    /// Restores the saved sums into this process's counters; later changes are written back to the file. An unreadable
    /// file is renamed with a warning and the budgets start at zero.
    pub fn restore(limits: &Arc<UsageLimiter>, path: &Path) -> Arc<Self> {
        let budgets = read_budgets(path).unwrap_or_else(|e| {
            let aside = path.with_extension("broken");
            let _ = fs::rename(path, &aside);
            tracing::error!(
                "limits: {} cannot be read ({e}); it is set aside as {}, and budgets start at 0",
                path.display(),
                aside.display()
            );
            SavedBudgets::default()
        });
        limits.memory_store().with_counters(|counters| {
            for (name, period, sum) in &budgets.budgets {
                counters.restore(name.clone(), *period, *sum);
            }
        });
        let saved = Arc::new(Self { path: path.to_owned(), written: Mutex::new(budgets) });
        // Weak, so that the thread ends with the limiter instead of keeping it alive.
        let (weak, own) = (Arc::downgrade(limits), Arc::clone(&saved));
        let thread = std::thread::Builder::new().name("budgets".into()).spawn(move || write_periodically(&weak, &own));
        if let Err(e) = thread {
            tracing::error!("limits: no thread to keep budgets ({e}); they are written at the end only");
        }
        saved
    }

    /// Writes the budgets and the spend ledger if they changed since the last write. An error is logged, and the next
    /// call tries again.
    pub fn write(&self, limits: &UsageLimiter) {
        if let Some(spend) = limits.spend_ledger() {
            spend.write();
        }
        // Before the counters are read, so that no older sums replace what another thread has written.
        let mut written = self.written.lock();
        let mut now = limits.memory_store().with_counters(|counters| SavedBudgets {
            budgets: counters.budgets().map(|(name, period, sum)| (name.to_owned(), period, sum)).collect(),
        });
        // Sorted, because the counters come from a hash map and the comparison below must not depend on its order.
        now.budgets.sort();
        if *written == now {
            return;
        }
        let text = serde_json::to_vec(&now).map_err(io::Error::from);
        match text.and_then(|text| write_atomic(&self.path, &text, FileAccess::Private)) {
            Ok(()) => *written = now,
            Err(e) => tracing::error!("limits: budgets cannot be kept in {}: {e}", self.path.display()),
        }
    }
}

fn write_periodically(limits: &Weak<UsageLimiter>, saved: &BudgetFile) {
    loop {
        std::thread::sleep(WRITE_INTERVAL);
        let Some(limits) = limits.upgrade() else { return };
        saved.write(&limits);
    }
}

fn read_budgets(path: &Path) -> Result<SavedBudgets, String> {
    let text = optional(fs::read(path)).map_err(|e| e.to_string())?;
    text.map_or_else(|| Ok(SavedBudgets::default()), |text| serde_json::from_slice(&text).map_err(|e| e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::UsageEstimate;
    use crate::config::{QuotaConfig, RuleConfig};
    use crate::rules::{Quota, RequestAttributes};
    use interflow_types::CallUsage;

    fn limits() -> Arc<UsageLimiter> {
        let allow = Quota { tokens_per_month: Some(100), ..Quota::default() };
        let rule = RuleConfig { name: "all".into(), allow, ..RuleConfig::default() };
        UsageLimiter::with_deps(
            &QuotaConfig { rule: vec![rule], ..QuotaConfig::default() },
            Path::new("/"),
            &crate::NoRedis,
            crate::LimiterDeps::default(),
        )
        .unwrap()
    }

    fn subject() -> RequestAttributes {
        RequestAttributes { provider: "openai".into(), ..RequestAttributes::default() }
    }

    #[tokio::test]
    async fn budgets_survive_a_restart_and_a_corrupt_file_is_archived() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("budgets.json");
        let first = limits();
        let saved = BudgetFile::restore(&first, &path);
        assert!(!path.exists());
        let grant = first
            .admit(subject(), UsageEstimate { input: 10, max_output: Some(0), choices: 1, ..UsageEstimate::default() })
            .await
            .ok()
            .unwrap();
        grant.commit(&CallUsage { input: 70, ..CallUsage::default() });
        saved.write(&first);
        let second = limits();
        BudgetFile::restore(&second, &path);
        assert_eq!(second.snapshot(&subject()).await.unwrap()[0].used, 70.0);
        // A writer that waits for another writes what is counted when it is its turn.
        let waits = saved.written.lock();
        let spent = std::thread::scope(|scope| {
            let writer = scope.spawn(|| saved.write(&first));
            std::thread::sleep(Duration::from_millis(100));
            first.memory_store().with_counters(|counters| {
                let all: Vec<_> = counters.budgets().map(|(name, period, _)| (name.to_owned(), period)).collect();
                all.into_iter().for_each(|(name, period)| counters.restore(name, period, 90));
            });
            drop(waits);
            writer.join().unwrap();
            read_budgets(&path).unwrap().budgets[0].2
        });
        assert_eq!(spent, 90);
        fs::write(&path, "{").unwrap();
        let third = limits();
        BudgetFile::restore(&third, &path);
        assert_eq!(third.snapshot(&subject()).await.unwrap()[0].used, 0.0);
        assert!(dir.path().join("budgets.broken").exists());
    }
}
