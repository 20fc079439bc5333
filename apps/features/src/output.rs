//! Rows to files: Parquet, Arrow IPC file and stream, CSV, JSON lines; to a file or to standard output.
//!
//! A file is written as `NAME.partial` (`NAME.1.partial`, if another run has that) and takes its name
//! only when it is finished; until then a file that had the name stays. A run that fails removes its
//! partial file (a killed one leaves it). A name that is a device or a pipe is written to directly; one
//! that is a symbolic link stays one, and the file that it leads to is replaced.
//!
//! What was lost on the way travels with the rows, where the format has a place for it: Parquet and
//! Arrow files state in their schema metadata every loss, and whether the rows are all there
//! (`laneway.complete`, with the reason in `laneway.incomplete`). CSV and JSON have no such place, and in
//! an Arrow stream to a pipe the schema was sent before anything was known: there the caller prints it.

use crate::arrow_file::ArrowFile;
use crate::columns::level_name;
use crate::config::Level;
use crate::encode::{Part, PartEncoder, ROW_GROUP_ROWS, RowGroup, Slice, csv};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use laneway_capture::PartialName;
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory},
    },
    basic::{Compression, ZstdLevel},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Seek, SeekFrom, Write},
    mem,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

/// What a file is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet, zstd.
    Parquet,
    /// Arrow IPC file (Feather, version 2).
    Arrow,
    /// Arrow IPC stream.
    ArrowStream,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    JsonLines,
}

impl Format {
    /// The names a user may give, with the suffixes that stand for them.
    pub const NAMES: [(&str, Format, &[&str]); 5] = [
        ("parquet", Format::Parquet, &["parquet", "pq"]),
        ("arrow", Format::Arrow, &["arrow", "feather", "ipc"]),
        ("arrows", Format::ArrowStream, &["arrows"]),
        ("csv", Format::Csv, &["csv"]),
        ("jsonl", Format::JsonLines, &["jsonl", "ndjson", "json"]),
    ];

    /// True when it is not for eyes.
    pub fn is_binary(self) -> bool {
        self.has_metadata()
    }

    /// True when a file of it says what was lost and whether the rows are all there.
    pub fn has_metadata(self) -> bool {
        matches!(self, Format::Parquet | Format::Arrow | Format::ArrowStream)
    }

    /// The format of a name.
    pub fn from_name(name: &str) -> Option<Format> {
        Self::NAMES.iter().find(|(n, ..)| *n == name).map(|(_, format, _)| *format)
    }

    /// The format that a file's suffix stands for.
    pub fn from_suffix(path: &Path) -> Option<Format> {
        let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::NAMES.iter().find(|(.., s)| s.contains(&suffix.as_str())).map(|(_, f, _)| *f)
    }
}

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The suffix says nothing.
    #[error(
        "{path}: cannot tell a format by its suffix; end it in .parquet, .arrow, .csv or .jsonl, \
         or say --format"
    )]
    UnknownFormat {
        /// The file.
        path: String,
    },
    /// It cannot be created, written or renamed.
    #[error("{path}: cannot {doing}: {source}; {hint}")]
    Io {
        /// The file.
        path: String,
        /// `create`, `write`, `rename`.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
        /// What to try.
        hint: &'static str,
    },
    /// A format's writer failed for another reason than the disk.
    #[error("{path}: {why}; try another --format")]
    Format {
        /// The file.
        path: String,
        /// Its message.
        why: String,
    },
}

impl OutputError {
    pub(crate) fn no_thread(path: String, source: io::Error) -> OutputError {
        let hint = "raise `ulimit -u`";
        OutputError::Io { path, doing: "start a thread that writes to it", source, hint }
    }
}

/// What the schema metadata says about a run.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// Fixed when the run starts: extractor, level, profile, timeouts, clock, sources.
    pub facts: BTreeMap<String, String>,
}

impl Provenance {
    /// The facts that hold for every run of this build.
    pub fn new(level: Level, profile: &str) -> Provenance {
        let mut facts = BTreeMap::new();
        facts.insert("laneway.schema".to_owned(), "features/1".to_owned());
        facts.insert("laneway.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        facts.insert("laneway.level".to_owned(), level_name(level).to_owned());
        facts.insert("laneway.profile".to_owned(), profile.to_owned());
        Provenance { facts }
    }

    /// Adds a fact under `laneway.NAME`.
    pub fn fact(&mut self, name: &str, value: impl ToString) {
        self.facts.insert(format!("laneway.{name}"), value.to_string());
    }

    fn on(&self, schema: &Schema) -> SchemaRef {
        let mut metadata = schema.metadata().clone();
        metadata.extend(self.facts.clone());
        Arc::new(schema.clone().with_metadata(metadata))
    }
}

enum Encoder {
    Parquet(Box<ParquetFile>),
    Arrow(Box<ArrowFile<Destination>>),
    ArrowStream(Box<arrow_ipc::writer::StreamWriter<Destination>>),
    Text(TextFile),
}

/// A file of text, which is made apart.
struct TextFile {
    to: Destination,
    /// What stands in front of the first row; a run that fails before it prints nothing.
    head: Vec<u8>,
}

impl TextFile {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        self.to.write_all(&mem::take(&mut self.head))?;
        self.to.write_all(text)
    }
}

/// A Parquet file, row group by row group.
struct ParquetFile {
    file: SerializedFileWriter<Destination>,
    factory: Arc<ArrowRowGroupWriterFactory>,
    /// The row group that [`Output::write`] is filling.
    filling: Option<RowGroup>,
    /// Columns of the row group whose others are still to be appended.
    columns: Vec<ArrowColumnChunk>,
}

/// An open output.
pub struct Output {
    path: String,
    /// The error number of the first write that failed, 0 without one: the encoders do not all pass
    /// on the system's error.
    refused: Arc<AtomicI32>,
    encoder: Option<Encoder>,
    parts: PartEncoder,
    partial: Option<PartialName>,
    schema: SchemaRef,
    format: Format,
    rows: u64,
    incomplete: Option<String>,
    facts: Vec<(String, String)>,
}

struct Destination {
    to: BufWriter<Box<dyn Write + Send>>,
    refused: Arc<AtomicI32>,
}

impl Destination {
    fn new(to: impl Write + Send + 'static, refused: &Arc<AtomicI32>) -> Destination {
        let to = BufWriter::with_capacity(BUFFER_BYTES, Box::new(to) as Box<dyn Write + Send>);
        Destination { to, refused: refused.clone() }
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            let code = error.raw_os_error().unwrap_or(0);
            let _ = self.refused.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        }
        result
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.to.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.to.flush();
        self.note(result)
    }
}

const BUFFER_BYTES: usize = 1 << 18;

impl Output {
    /// Opens `path` (`-` for standard output) for rows of `schema`. Creating the file is the first
    /// thing done, so that an unwritable place is known before any work.
    ///
    /// # Errors
    /// [`OutputError::Io`] when the file cannot be created.
    pub fn open(
        path: &Path,
        format: Format,
        schema: &Schema,
        provenance: &Provenance,
    ) -> Result<Output, OutputError> {
        let name = path.display().to_string();
        let refused = Arc::new(AtomicI32::new(0));
        let (destination, partial) = if name == "-" {
            (Destination::new(io::stdout(), &refused), None)
        } else {
            let (file, partial) =
                PartialName::create(path).map_err(|e| io_error(&name, "create", e))?;
            (Destination::new(file, &refused), partial)
        };
        let schema = provenance.on(schema);
        let (encoder, parts) =
            encoder(format, &schema, destination).map_err(|why| explain(&name, &refused, why))?;
        let (encoder, rows, incomplete, facts) = (Some(encoder), 0, None, Vec::new());
        Ok(Output {
            path: name,
            refused,
            encoder,
            parts,
            partial,
            schema,
            format,
            rows,
            incomplete,
            facts,
        })
    }

    /// What encodes parts of this output, on any thread.
    pub(crate) fn part_encoder(&self) -> PartEncoder {
        self.parts.clone()
    }

    /// Appends a part that was encoded apart: consecutive rows, behind all before it. `rows` are counted
    /// with the first slice of them.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn append(&mut self, part: Part, rows: u64) -> Result<(), OutputError> {
        self.rows += rows;
        let done = match (self.encoder_mut(), part) {
            (Encoder::Parquet(parquet), Part::Columns(columns)) => parquet.append(columns),
            (Encoder::Arrow(w), Part::Batches(batches)) => {
                batches.iter().try_for_each(|batch| w.write(batch)).map_err(|e| e.to_string())
            }
            (Encoder::ArrowStream(w), Part::Batches(batches)) => {
                batches.iter().try_for_each(|batch| w.write(batch)).map_err(|e| e.to_string())
            }
            (Encoder::Text(file), Part::Text(text)) => file.write(&text).map_err(|e| e.to_string()),
            _ => unreachable!("an output makes its own encoder of parts"),
        };
        done.map_err(|why| explain(&self.path, &self.refused, why))
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// When the disk is full or the reader of a pipe is gone; the partial file is removed on drop.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), OutputError> {
        if let Encoder::Parquet(parquet) = self.encoder_mut() {
            // As it comes, rather than a row group at once: the work is spread over time.
            let done = parquet.write(batch);
            self.rows += batch.num_rows() as u64;
            return done.map_err(|why| explain(&self.path, &self.refused, why));
        }
        let whole = Slice { index: 0, of: 1 };
        let part = self.parts.encode(std::slice::from_ref(batch), whole);
        let part = part.map_err(|why| explain(&self.path, &self.refused, why))?;
        self.append(part, batch.num_rows() as u64)
    }

    /// Gives what reads a pipe or a device the rows so far. A file under a name of its own is written as its buffer
    /// fills, and one with a foot is read when it is whole.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn pass_on(&mut self) -> Result<(), OutputError> {
        if self.partial.is_some() {
            return Ok(());
        }
        let done = match self.encoder_mut() {
            Encoder::Text(file) => file.to.flush(),
            Encoder::ArrowStream(stream) => stream.get_mut().flush(),
            Encoder::Parquet(_) | Encoder::Arrow(_) => Ok(()),
        };
        done.map_err(|e| io_error(&self.path, "write", e))
    }

    /// What a part that could not be encoded means for this output.
    pub(crate) fn failure(&self, why: String) -> OutputError {
        explain(&self.path, &self.refused, why)
    }

    fn encoder_mut(&mut self) -> &mut Encoder {
        self.encoder.as_mut().expect("an output is written before it is finished")
    }

    /// From now on the rows are known not to be all there are, for this reason; the file will say so,
    /// where its format has a place for it.
    pub fn mark_incomplete(&mut self, why: impl Into<String>) {
        self.incomplete = Some(why.into());
    }

    /// The name of the file until it is finished, if it has one.
    pub fn partial_path(&self) -> Option<&Path> {
        self.partial.as_ref().map(PartialName::path)
    }

    /// Its name, as it was given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Adds what is known only at the end to what the metadata say, under `laneway.NAME`.
    pub fn fact(&mut self, name: &str, value: impl ToString) {
        self.facts.push((format!("laneway.{name}"), value.to_string()));
    }

    /// Writes what the run lost into the metadata, completes the file and gives it its name.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn finish(mut self, losses: &BTreeMap<String, u64>) -> Result<u64, OutputError> {
        let path = self.path.clone();
        let stated = self.stated(losses);
        let encoder = self.encoder.take().expect("an output is finished once");
        let mut destination = end(encoder, &self.schema, &stated)
            .map_err(|why| explain(&path, &self.refused, why))?;
        destination.flush().map_err(|e| io_error(&path, "write", e))?;
        drop(destination);
        if let Some(partial) = self.partial.take() {
            if self.format == Format::ArrowStream {
                restate_schema(partial.path(), &self.schema, stated)
                    .map_err(|e| io_error(&path, "write", e))?;
            }
            partial.commit().map_err(|e| io_error(&path, "rename", e))?;
        }
        Ok(self.rows)
    }

    /// What is known at the end, for the metadata.
    fn stated(&self, losses: &BTreeMap<String, u64>) -> Vec<(String, String)> {
        let total: u64 = losses.values().sum();
        let each = losses.iter().map(|(name, n)| (format!("laneway.lost.{name}"), n.to_string()));
        let mut stated: Vec<_> = each.collect();
        stated.push(("laneway.lost.total".to_owned(), total.to_string()));
        stated.push(("laneway.complete".to_owned(), self.incomplete.is_none().to_string()));
        stated.extend(self.facts.iter().cloned());
        stated.extend(
            self.incomplete.iter().map(|why| ("laneway.incomplete".to_owned(), why.clone())),
        );
        stated
    }
}

impl ParquetFile {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let mut rest = batch.clone();
        while rest.num_rows() > 0 {
            let group = match &mut self.filling {
                Some(group) => group,
                none => {
                    let columns = 0..batch.num_columns();
                    none.insert(RowGroup::begin(&self.factory, &batch.schema(), columns)?)
                }
            };
            let rows = rest.num_rows().min(group.room());
            group.write(&rest.slice(0, rows))?;
            rest = rest.slice(rows, rest.num_rows() - rows);
            if group.room() == 0 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the row group that is being filled.
    fn flush(&mut self) -> Result<(), String> {
        match self.filling.take().map(RowGroup::finish).transpose()? {
            Some(Part::Columns(columns)) => self.add(columns),
            _ => Ok(()),
        }
    }

    /// Takes columns of a row group behind the one that is being filled, and writes it with its last one.
    fn append(&mut self, columns: Vec<ArrowColumnChunk>) -> Result<(), String> {
        self.flush()?;
        self.columns.extend(columns);
        if self.columns.len() < self.file.schema_descr().num_columns() {
            return Ok(());
        }
        let columns = mem::take(&mut self.columns);
        self.add(columns)
    }

    fn add(&mut self, columns: Vec<ArrowColumnChunk>) -> Result<(), String> {
        let mut group = self.file.next_row_group().map_err(|e| e.to_string())?;
        for column in columns {
            column.append_to_row_group(&mut group).map_err(|e| e.to_string())?;
        }
        group.close().map(drop).map_err(|e| e.to_string())
    }
}

/// `schema` with more to say about the run.
fn stating(schema: &Schema, stated: &[(String, String)]) -> Schema {
    let mut metadata = schema.metadata().clone();
    metadata.extend(stated.iter().cloned());
    schema.clone().with_metadata(metadata)
}

/// An Arrow stream has its schema in front, where nothing was known of losses yet: writes the file
/// again with a schema that states them, the batches byte for byte as they are.
fn restate_schema(path: &Path, schema: &Schema, stated: Vec<(String, String)>) -> io::Result<()> {
    let head = |schema: &Schema| -> io::Result<Vec<u8>> {
        // A writer writes the schema message when it is made; `Vec` keeps what it wrote.
        let mut bytes = Vec::new();
        let writer = arrow_ipc::writer::StreamWriter::try_new(&mut bytes, schema);
        drop(writer.map_err(io::Error::other)?);
        Ok(bytes)
    };
    let stated = stating(schema, &stated);
    let mut from = File::open(path)?;
    let (to, name) = PartialName::create(path)?;
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, to);
    to.write_all(&head(&stated)?)?;
    from.seek(SeekFrom::Start(head(schema)?.len() as u64))?;
    io::copy(&mut from, &mut to)?;
    to.flush()?;
    name.map_or(Ok(()), PartialName::commit)
}

/// Writes what stands at the end of a format.
fn end(
    encoder: Encoder,
    schema: &Schema,
    stated: &[(String, String)],
) -> Result<Destination, String> {
    Ok(match encoder {
        Encoder::Parquet(mut parquet) => {
            parquet.flush()?;
            let mut file = parquet.file;
            for (key, value) in stated {
                file.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
            }
            file.into_inner().map_err(|e| e.to_string())?
        }
        Encoder::Arrow(w) => w.finish(&stating(schema, stated)).map_err(|e| e.to_string())?,
        Encoder::ArrowStream(mut w) => {
            w.finish().map_err(|e| e.to_string())?;
            w.into_inner().map_err(|e| e.to_string())?
        }
        Encoder::Text(mut file) => {
            file.write(b"").map_err(|e| e.to_string())?;
            file.to
        }
    })
}

fn encoder(
    format: Format,
    schema: &SchemaRef,
    to: Destination,
) -> Result<(Encoder, PartEncoder), String> {
    Ok(match format {
        Format::Parquet => {
            // What is known of a row group stays in memory until the file has its foot: least and greatest value of
            // each column, and none of its pages'.
            let properties = WriterProperties::builder()
                .set_statistics_enabled(EnabledStatistics::Chunk)
                .set_offset_index_disabled(true)
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                .set_created_by(format!("laneway {}", env!("CARGO_PKG_VERSION")))
                .build();
            let writer = ArrowWriter::try_new(to, schema.clone(), Some(properties));
            let parts = writer.and_then(ArrowWriter::into_serialized_writer);
            let (file, factory) = parts.map_err(|e| e.to_string())?;
            let factory = Arc::new(factory);
            let parts = PartEncoder::RowGroups(factory.clone(), schema.clone());
            let parquet = ParquetFile { file, factory, filling: None, columns: Vec::new() };
            (Encoder::Parquet(Box::new(parquet)), parts)
        }
        Format::Arrow => {
            let file = ArrowFile::begin(to, schema).map_err(|e| e.to_string())?;
            (Encoder::Arrow(Box::new(file)), PartEncoder::Batches)
        }
        Format::ArrowStream => {
            let writer = arrow_ipc::writer::StreamWriter::try_new(to, schema);
            let writer = writer.map_err(|e| e.to_string())?;
            (Encoder::ArrowStream(Box::new(writer)), PartEncoder::Batches)
        }
        Format::Csv => {
            let head = csv(&[RecordBatch::new_empty(schema.clone())], true)?;
            (Encoder::Text(TextFile { to, head }), PartEncoder::Csv)
        }
        Format::JsonLines => {
            let head = Vec::new();
            (Encoder::Text(TextFile { to, head }), PartEncoder::JsonLines)
        }
    })
}

fn io_error(path: &str, doing: &'static str, source: io::Error) -> OutputError {
    let hint = match source.kind() {
        io::ErrorKind::PermissionDenied => "choose a place you may write to",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "create the folder first",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::StorageFull => "free some space, or write elsewhere",
        io::ErrorKind::BrokenPipe => "the program that read the rows has ended",
        io::ErrorKind::AlreadyExists => {
            "remove the .partial files that killed runs have left there"
        }
        _ => "check the path and the disk",
    };
    OutputError::Io { path: path.to_owned(), doing, source, hint }
}

/// What a writer's failure was: the system's answer if it gave one, else the writer's words.
fn explain(path: &str, refused: &AtomicI32, why: String) -> OutputError {
    match refused.load(Ordering::Relaxed) {
        0 => OutputError::Format { path: path.to_owned(), why },
        code => io_error(path, "write", io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{PacketRow, packets};
    use laneway_flow::Record;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use std::fs;

    /// A live run has three of them a second at 400,000 rows/s.
    #[test]
    fn a_parquet_file_keeps_little_of_each_row_group_until_its_end() {
        let name = format!("laneway-groups-{}.parquet", std::process::id());
        let path = std::env::temp_dir().join(name);
        let table = packets(0);
        let batch = table.batch(&[PacketRow { source: 0, record: Record::default() }; 4]);
        let kept_bytes = |groups: usize| {
            let provenance = Provenance::new(Level::Packet, "core");
            let schema = table.schema();
            let mut output = Output::open(&path, Format::Parquet, schema, &provenance).unwrap();
            for _ in 0..groups {
                output.write(&batch).unwrap();
                let Encoder::Parquet(parquet) = output.encoder_mut() else { unreachable!() };
                parquet.flush().unwrap();
            }
            output.finish(&BTreeMap::new()).unwrap();
            let reader =
                ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
            let metadata = reader.parse_and_finish(&File::open(&path).unwrap()).unwrap();
            assert_eq!(metadata.num_row_groups(), groups);
            metadata.memory_size()
        };
        let each_bytes = (kept_bytes(110) - kept_bytes(10)) / 100;
        fs::remove_file(&path).unwrap();
        assert!(each_bytes <= 512 * batch.num_columns(), "{each_bytes} bytes a row group");
    }
}
