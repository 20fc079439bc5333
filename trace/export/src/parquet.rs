//! Tables as Parquet files: the functions and contexts of an analysis, and every call of a trace.
//!
//! Calls are written as they end, in groups of rows, so memory stays bounded.

use crate::names::{Interned, Names};
use crate::nest::{CallFrame, Calls, Ended, LeftOut};
use crate::output::{ExportError, Written};
use crate::table::{Cells, Table};
use arrow_array::builder::{
    BooleanBuilder, StringBuilder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use laneway_trace_read::{Kind, Loss, Thread, ThreadId};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::io::Write;
use std::sync::Arc;

/// Rows that are kept until they are written together.
const BATCH_ROWS: usize = 1 << 16;

fn properties(facts: &[(&str, String)]) -> WriterProperties {
    let facts =
        facts.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone())).collect();
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("laneway ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(facts))
        .build()
}

fn failed(table: &'static str) -> impl Fn(ParquetError) -> ExportError {
    move |error| match error {
        ParquetError::External(why) => match why.downcast::<std::io::Error>() {
            Ok(io) => ExportError::Write(*io),
            Err(why) => ExportError::Table { table, why: why.to_string() },
        },
        other => ExportError::Table { table, why: other.to_string() },
    }
}

fn unfit(table: &'static str) -> impl Fn(ArrowError) -> ExportError {
    move |error| ExportError::Table { table, why: error.to_string() }
}

/// Writes one table of an analysis.
///
/// # Errors
/// What could not be written.
pub fn write_parquet(table: &Table, to: impl Write + Send) -> Result<(), ExportError> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for column in &table.columns {
        let (kind, array): (DataType, ArrayRef) = match &column.cells {
            Cells::Text(cells) => (DataType::Utf8, Arc::new(StringArray::from_iter_values(cells))),
            Cells::Count(cells) => {
                (DataType::UInt64, Arc::new(UInt64Array::from_iter(cells.iter().copied())))
            }
            Cells::Value(cells) => {
                (DataType::Float64, Arc::new(Float64Array::from_iter(cells.iter().copied())))
            }
            Cells::Flag(cells) => (DataType::Boolean, Arc::new(BooleanArray::from(cells.clone()))),
        };
        let is_nullable = matches!(column.cells, Cells::Count(_) | Cells::Value(_));
        fields.push(Field::new(column.name, kind, is_nullable));
        arrays.push(array);
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(unfit(table.name))?;
    let properties = properties(&[]);
    let mut writer =
        ArrowWriter::try_new(to, schema, Some(properties)).map_err(failed(table.name))?;
    writer.write(&batch).map_err(failed(table.name))?;
    writer.close().map_err(failed(table.name))?;
    Ok(())
}

/// Writes every call as a row: thread, name, begin, duration, depth, whether it is cut.
pub struct CallTable<'n, W: Write + Send> {
    writer: Option<ArrowWriter<W>>,
    names: &'n dyn Names,
    origin_ns: u64,
    interned: Interned,
    texts: Vec<String>,
    schema: Arc<Schema>,
    thread: UInt32Builder,
    name: StringBuilder,
    began: UInt64Builder,
    lasted: UInt64Builder,
    depth: UInt16Builder,
    cut: BooleanBuilder,
    rows: usize,
    calls: u64,
    error: Option<ExportError>,
}

const CALLS: &str = "calls";

impl<'n, W: Write + Send> CallTable<'n, W> {
    /// Writes to `to`; times count from `origin_ns`, ns since the epoch, which the file's metadata holds.
    ///
    /// # Errors
    /// What could not be written.
    pub fn new(to: W, names: &'n dyn Names, origin_ns: u64) -> Result<Self, ExportError> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("thread", DataType::UInt32, false),
            Field::new("name", DataType::Utf8, false),
            Field::new("at_ns", DataType::UInt64, false),
            Field::new("duration_ns", DataType::UInt64, false),
            Field::new("depth", DataType::UInt16, false),
            Field::new("cut", DataType::Boolean, false),
        ]));
        let properties = properties(&[("origin_unix_ns", origin_ns.to_string())]);
        let writer =
            ArrowWriter::try_new(to, schema.clone(), Some(properties)).map_err(failed(CALLS))?;
        Ok(CallTable {
            writer: Some(writer),
            names,
            origin_ns,
            interned: Interned::default(),
            texts: Vec::new(),
            schema,
            thread: UInt32Builder::new(),
            name: StringBuilder::new(),
            began: UInt64Builder::new(),
            lasted: UInt64Builder::new(),
            depth: UInt16Builder::new(),
            cut: BooleanBuilder::new(),
            rows: 0,
            calls: 0,
            error: None,
        })
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.thread.finish()),
            Arc::new(self.name.finish()),
            Arc::new(self.began.finish()),
            Arc::new(self.lasted.finish()),
            Arc::new(self.depth.finish()),
            Arc::new(self.cut.finish()),
        ];
        self.rows = 0;
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(unfit(CALLS))?;
        match &mut self.writer {
            Some(writer) => writer.write(&batch).map_err(failed(CALLS)),
            None => Ok(()),
        }
    }

    /// Ends the file. `bytes` of what comes back are those of the file.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(mut self, left_out: LeftOut) -> Result<Written, ExportError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.flush()?;
        let Some(mut writer) = self.writer.take() else {
            return Ok(Written { calls: self.calls, left_out, ..Written::default() });
        };
        let missing = left_out.words();
        writer.append_key_value_metadata(KeyValue::new("left_out".to_owned(), missing));
        writer.finish().map_err(failed(CALLS))?;
        let bytes = writer.bytes_written() as u64;
        Ok(Written { calls: self.calls, bytes, files: 1, left_out })
    }
}

impl<W: Write + Send> Calls for CallTable<'_, W> {
    fn thread(&mut self, _: ThreadId, _: &Thread) {}

    fn begin(&mut self, _: ThreadId, _: u64, _: CallFrame) {}

    fn end(&mut self, thread: ThreadId, ended: &Ended) {
        let (number, fresh) = self.interned.number(self.names, ended.frame);
        self.texts.extend(fresh);
        self.thread.append_value(thread.0);
        self.name.append_value(&self.texts[number]);
        self.began.append_value(ended.began_ns.saturating_sub(self.origin_ns));
        self.lasted.append_value(ended.ended_ns.saturating_sub(ended.began_ns));
        self.depth.append_value(u16::try_from(ended.depth).unwrap_or(u16::MAX));
        self.cut.append_value(ended.is_cut);
        self.calls += 1;
        self.rows += 1;
        if self.rows == BATCH_ROWS
            && let Err(error) = self.flush()
        {
            self.error.get_or_insert(error);
        }
    }

    fn moment(&mut self, _: ThreadId, _: u64, _: &Kind) {}

    fn lost(&mut self, _: ThreadId, _: u64, _: &Loss) {}

    fn is_full(&self) -> bool {
        self.error.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::nest::{Nest, Selection};
    use crate::table;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;

    /// A file that is gone when it is closed.
    fn file() -> File {
        let path = std::env::temp_dir().join(format!(
            "laneway-export-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    fn rows(file: File) -> RecordBatch {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        reader.map(Result::unwrap).next().expect("one batch")
    }

    #[test]
    fn functions_come_back_as_they_were() {
        let analysis = example::analysis();
        let to = file();
        write_parquet(&table::functions(&analysis), to.try_clone().unwrap()).unwrap();
        let batch = rows(to);
        let names = batch.column_by_name("function").unwrap().as_string::<i32>();
        let calls = batch.column_by_name("calls").unwrap().as_primitive::<UInt64Type>();
        assert_eq!(batch.num_rows(), analysis.functions.len());
        for (at, function) in analysis.functions.iter().enumerate() {
            assert_eq!(
                (names.value(at), calls.value(at)),
                (function.name.as_str(), function.calls)
            );
        }
    }

    #[test]
    fn every_call_is_a_row() {
        let to = file();
        let table =
            CallTable::new(to.try_clone().unwrap(), &example::Hostile, example::ORIGIN_NS).unwrap();
        let mut nest = Nest::new(table, Selection::default());
        example::trace(&mut nest);
        let (table, left_out) = nest.finish();
        let written = table.finish(left_out).unwrap();
        assert_eq!(written.bytes, to.metadata().unwrap().len());
        let batch = rows(to);
        assert_eq!(batch.num_rows() as u64, written.calls);
        let lasted = batch.column_by_name("duration_ns").unwrap().as_primitive::<UInt64Type>();
        let names = batch.column_by_name("name").unwrap().as_string::<i32>();
        assert_eq!((names.value(0), lasted.value(0)), (example::HOSTILE_NAME, 1_500));
    }
}
