//! The report as a Parquet file: a column of texts for each column of the report, then the figures.

use std::sync::Arc;

use ::parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{Type, TypePtr};
use interflow_limits::{SpendReport, UsageSums};

pub fn to_parquet(report: &SpendReport) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(schema(&report.by)?);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default()))?;
    let mut rows = file.next_row_group()?;
    let next = "the schema has as many columns";
    for by in &report.by {
        let values: Vec<Option<&String>> = report.rows.iter().map(|row| row.group.get(by)).collect();
        // 0 for a value that is missing, which is then not in the list.
        let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
        let texts: Vec<ByteArray> = values.into_iter().flatten().map(|value| value.as_str().into()).collect();
        let mut column = rows.next_column()?.expect(next);
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
        column.close()?;
    }
    for i in 0..SpendReport::figures(&UsageSums::default()).len() {
        let figure = |sums: &UsageSums| i64::try_from(SpendReport::figures(sums)[i].1).unwrap_or(i64::MAX);
        let values: Vec<i64> = report.rows.iter().map(|row| figure(&row.sums)).collect();
        let mut column: SerializedColumnWriter<'_> = rows.next_column()?.expect(next);
        column.typed::<Int64Type>().write_batch(&values, None, None)?;
        column.close()?;
    }
    let dollars: Vec<f64> = report.rows.iter().map(|row| row.dollars).collect();
    let mut column = rows.next_column()?.expect(next);
    column.typed::<DoubleType>().write_batch(&dollars, None, None)?;
    column.close()?;
    rows.close()?;
    file.into_inner()
}

fn schema(by: &[String]) -> Result<Type, ParquetError> {
    let text = |name: &String| {
        Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(LogicalType::String))
            .build()
    };
    let number = |name: &str, of| Type::primitive_type_builder(name, of).with_repetition(Repetition::REQUIRED).build();
    let mut columns = by.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    for (name, _) in SpendReport::figures(&UsageSums::default()) {
        columns.push(number(name, PhysicalType::INT64)?);
    }
    columns.push(number("usd", PhysicalType::DOUBLE)?);
    Type::group_type_builder("spend").with_fields(columns.into_iter().map(TypePtr::from).collect()).build()
}
