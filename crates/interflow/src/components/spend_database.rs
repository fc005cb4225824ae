//! The spend ledger's table in the database of the shared store.

use interflow_limits::{SpendDatabase, UsageSums};
use interflow_store::shared::{SharedSpend, SpendStore};
use jiff::civil::Date;

pub struct SharedSpendDatabase(pub SpendStore);

impl SpendDatabase for SharedSpendDatabase {
    fn put(&self, day: Date, writer: &str, rows: &[(String, UsageSums)]) -> Result<(), String> {
        let row =
            |(account, sums): &(String, UsageSums)| SharedSpend { account: account.clone(), sums: sums.to_array() };
        self.0.put(day, writer, &rows.iter().map(row).collect::<Vec<_>>()).map_err(|e| e.to_string())
    }

    fn sums(&self, since: Date, until: Date, by_day: bool) -> Result<Vec<(Date, String, UsageSums)>, String> {
        let rows = self.0.sums(since, until, by_day).map_err(|e| e.to_string())?;
        Ok(rows.into_iter().map(|(day, row)| (day, row.account, UsageSums::from_array(row.sums))).collect())
    }

    fn remove_before(&self, day: Date) -> Result<bool, String> {
        self.0.remove_before(day).map_err(|e| e.to_string())
    }
}
