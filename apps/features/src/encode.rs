//! Batches to the bytes of a format, by whichever thread has the time: a [`Part`] is encoded without its
//! output, and appended to it in order.
//!
//! A part of a Parquet file is a row group, or a run of its columns: columns are encoded and compressed
//! apart from each other and from the file, and that is nearly all the work there is. A part of a text format is its
//! text. Arrow files take batches as they are in memory, so that there is nothing to do before they are written.

use arrow_array::{
    Array, ArrayRef, RecordBatch, StringArray, cast::AsArray, types::TimestampNanosecondType,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use std::{net::Ipv6Addr, ops::Range, sync::Arc};

/// Rows per Parquet row group: memory of the writer against scan efficiency of the reader.
pub(crate) const ROW_GROUP_ROWS: usize = 1 << 17;
/// Runs of columns of a row group for each thread that encodes it.
const SLICES_PER_WORKER: usize = 2;

/// Encodes parts of one output. Clones encode parts of the same.
#[derive(Clone)]
pub(crate) enum PartEncoder {
    RowGroups(Arc<ArrowRowGroupWriterFactory>, SchemaRef),
    Batches,
    Csv,
    JsonLines,
}

/// Consecutive rows, encoded.
pub(crate) enum Part {
    /// Columns of a row group; the next part of the output has those behind them, up to the last one.
    Columns(Vec<ArrowColumnChunk>),
    Batches(Vec<RecordBatch>),
    Text(Vec<u8>),
}

/// What of its rows a part holds: of that many runs of columns the one with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl PartEncoder {
    /// Rows to be gathered for a part; `None` where batches are parts as they come.
    pub(crate) fn part_rows(&self) -> Option<usize> {
        matches!(self, PartEncoder::RowGroups(..)).then_some(ROW_GROUP_ROWS)
    }

    /// How many parts the same rows make, so that `workers` threads have them done at about the same
    /// time although columns differ in cost.
    pub(crate) fn slices(&self, workers: usize) -> usize {
        match self {
            PartEncoder::RowGroups(_, schema) if workers > 1 => {
                (SLICES_PER_WORKER * workers).min(schema.fields().len())
            }
            _ => 1,
        }
    }

    /// Encodes a slice of these batches, which hold at most [`ROW_GROUP_ROWS`] rows.
    ///
    /// # Errors
    /// The words of the format's library.
    pub(crate) fn encode(&self, batches: &[RecordBatch], slice: Slice) -> Result<Part, String> {
        match self {
            PartEncoder::RowGroups(factory, schema) => {
                let fields = schema.fields().len();
                let first = |index: usize| fields * index / slice.of;
                let columns = first(slice.index)..first(slice.index + 1);
                let mut group = RowGroup::begin(factory, schema, columns)?;
                batches.iter().try_for_each(|batch| group.write(batch))?;
                group.finish()
            }
            PartEncoder::Batches => Ok(Part::Batches(batches.to_vec())),
            PartEncoder::Csv => csv(batches, false).map(Part::Text),
            PartEncoder::JsonLines => json_lines(batches),
        }
    }
}

/// Columns of a row group that is being filled. Each field of our schemas is one column of the file: none
/// holds fields of its own.
pub(crate) struct RowGroup {
    schema: SchemaRef,
    first: usize,
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

impl RowGroup {
    pub(crate) fn begin(
        factory: &ArrowRowGroupWriterFactory,
        schema: &SchemaRef,
        columns: Range<usize>,
    ) -> Result<RowGroup, String> {
        // The number matters to encrypted files only.
        let mut all = factory.create_column_writers(0).map_err(|e| e.to_string())?;
        let first = columns.start;
        let columns = all.drain(columns).collect();
        Ok(RowGroup { schema: schema.clone(), first, columns, rows: 0 })
    }

    /// Rows that it still takes.
    pub(crate) fn room(&self) -> usize {
        ROW_GROUP_ROWS - self.rows
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), String> {
        for (i, column) in (self.first..).zip(&mut self.columns) {
            let leaves = compute_leaves(self.schema.field(i), batch.column(i));
            for leaf in leaves.map_err(|e| e.to_string())? {
                column.write(&leaf).map_err(|e| e.to_string())?;
            }
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Part, String> {
        let columns = self.columns.into_iter().map(ArrowColumnWriter::close);
        columns.collect::<Result<_, _>>().map(Part::Columns).map_err(|e| e.to_string())
    }
}

/// Batches as comma-separated values, below a header line or not.
pub(crate) fn csv(batches: &[RecordBatch], has_header: bool) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut writer = arrow_csv::WriterBuilder::new().with_header(has_header).build(&mut bytes);
    for batch in batches {
        writer.write(&printable(batch)).map_err(|e| e.to_string())?;
    }
    drop(writer);
    Ok(bytes)
}

fn json_lines(batches: &[RecordBatch]) -> Result<Part, String> {
    let mut bytes = Vec::new();
    let builder = arrow_json::WriterBuilder::new().with_explicit_nulls(true);
    let mut writer: arrow_json::LineDelimitedWriter<_> = builder.build(&mut bytes);
    for batch in batches {
        writer.write(&printable(batch)).map_err(|e| e.to_string())?;
    }
    writer.finish().map_err(|e| e.to_string())?;
    drop(writer);
    Ok(Part::Text(bytes))
}

/// A batch for text formats: addresses and times as people write them, lists joined by `;`.
fn printable(batch: &RecordBatch) -> RecordBatch {
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let (data_type, array): (DataType, ArrayRef) = match array.data_type() {
            DataType::FixedSizeBinary(16) => {
                let addresses = array.as_fixed_size_binary();
                let text = addresses.iter().map(|a| a.map(address_text));
                (DataType::Utf8, Arc::new(text.collect::<StringArray>()))
            }
            // The zone by its offset: no table of zone names is linked in.
            DataType::Timestamp(unit @ TimeUnit::Nanosecond, Some(_)) => {
                let times = array.as_primitive::<TimestampNanosecondType>().clone();
                let data_type = DataType::Timestamp(*unit, Some("+00:00".into()));
                (data_type, Arc::new(times.with_timezone("+00:00")))
            }
            DataType::FixedSizeList(..) => {
                let text = array.as_fixed_size_list().iter().map(|l| l.map(|l| list_text(&l)));
                (DataType::Utf8, Arc::new(text.collect::<StringArray>()))
            }
            other => (other.clone(), array.clone()),
        };
        fields.push(Field::new(field.name(), data_type, field.is_nullable()));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .expect("each array was replaced together with its type")
}

fn address_text(bytes: &[u8]) -> String {
    let octets: [u8; 16] = bytes.try_into().expect("a 16-byte column");
    Ipv6Addr::from(octets).to_canonical().to_string()
}

fn list_text(list: &ArrayRef) -> String {
    let options = arrow_cast::display::FormatOptions::default();
    let Ok(values) = arrow_cast::display::ArrayFormatter::try_new(list, &options) else {
        return String::new();
    };
    (0..list.len()).map(|i| values.value(i).to_string()).collect::<Vec<_>>().join(";")
}
