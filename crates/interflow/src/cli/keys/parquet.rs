//! The report as a Parquet file: a column of texts for each column of the report, then the figures.

use std::io;

use interflow_archive::parquet::{ColumnKind, TableWriter};
use interflow_limits::{SpendReport, UsageSums};

pub fn to_parquet(report: &SpendReport) -> io::Result<Vec<u8>> {
    let figures = SpendReport::figures(&UsageSums::default());
    let mut columns: Vec<_> = report.by.iter().map(|name| (name.as_str(), ColumnKind::Text)).collect();
    columns.extend(figures.iter().map(|(name, _)| (*name, ColumnKind::Integer)));
    columns.push(("usd", ColumnKind::Number));
    let mut file = Vec::new();
    let mut table = TableWriter::new(&mut file, "spend", &columns, None)?;
    for row in &report.rows {
        let mut values = table.columns().iter_mut();
        // In this order, so that no value is taken for a column that is not there.
        report.by.iter().zip(values.by_ref()).for_each(|(by, value)| value.text(row.group.get(by).map(String::as_str)));
        SpendReport::figures(&row.sums).iter().zip(values.by_ref()).for_each(|((_, n), value)| value.number(Some(*n)));
        values.for_each(|value| value.double(row.dollars));
        table.end_row()?;
    }
    table.finish()?;
    drop(table);
    Ok(file)
}
