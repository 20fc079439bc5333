//! Rows to files: Parquet, Arrow IPC stream, CSV, JSON lines; to a file or to standard output.
//!
//! A file is written as `NAME.partial` and takes its name only when it is complete; until then a
//! file that had the name stays. A run that does not complete removes its partial file (a killed one
//! leaves it). A name that is a device or a pipe is written to directly.
//!
//! What was lost on the way travels with the rows, where the format has a place for it: Parquet and
//! Arrow files state every loss in their schema metadata. CSV and JSON have no such place, and in an
//! Arrow stream to a pipe the schema was sent before anything was lost: there the caller prints them.

use crate::columns::level_name;
use crate::config::Level;
use arrow_array::{
    Array, ArrayRef, RecordBatch, StringArray, cast::AsArray, types::TimestampNanosecondType,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::{metadata::KeyValue, properties::WriterProperties},
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Seek, SeekFrom, Write},
    net::Ipv6Addr,
    path::{Path, PathBuf},
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
    /// Arrow IPC stream.
    Arrow,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    JsonLines,
}

impl Format {
    /// The names a user may give, with the suffixes that stand for them.
    pub const NAMES: [(&str, Format, &[&str]); 4] = [
        ("parquet", Format::Parquet, &["parquet", "pq"]),
        ("arrow", Format::Arrow, &["arrow", "arrows", "ipc"]),
        ("csv", Format::Csv, &["csv"]),
        ("jsonl", Format::JsonLines, &["jsonl", "ndjson", "json"]),
    ];

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
    Parquet(Box<ArrowWriter<Destination>>),
    Arrow(Box<arrow_ipc::writer::StreamWriter<Destination>>),
    Csv(Box<arrow_csv::Writer<Destination>>),
    JsonLines(Box<arrow_json::LineDelimitedWriter<Destination>>),
}

/// An open output.
pub struct Output {
    path: String,
    /// The error number of the first write that failed, 0 without one: the encoders do not all pass
    /// on what the system said.
    refused: Arc<AtomicI32>,
    encoder: Option<Encoder>,
    partial: Option<Partial>,
    schema: SchemaRef,
    format: Format,
    rows: u64,
    facts: Vec<(String, String)>,
}

/// The name a file has until it is complete; removed on drop.
struct Partial {
    now: PathBuf,
    then: PathBuf,
    keep: bool,
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing better can be done on the way out than to leave it to be overwritten.
            let _ = fs::remove_file(&self.now);
        }
    }
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
/// Rows per Parquet row group: memory of the writer against scan efficiency of the reader.
const ROW_GROUP_ROWS: usize = 1 << 17;

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
            let (file, partial) = create(path).map_err(|e| io_error(&name, "create", e))?;
            (Destination::new(file, &refused), partial)
        };
        let schema = provenance.on(schema);
        let encoder = encoder(format, schema.clone(), destination)
            .map_err(|why| explain(&name, &refused, why))?;
        let encoder = Some(encoder);
        Ok(Output {
            path: name,
            refused,
            encoder,
            partial,
            schema,
            format,
            rows: 0,
            facts: Vec::new(),
        })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// When the disk is full or the reader of a pipe is gone; the partial file is removed on drop.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), OutputError> {
        self.rows += batch.num_rows() as u64;
        match self.encoder.as_mut().expect("an output is written before it is finished") {
            Encoder::Parquet(w) => w.write(batch).map_err(|e| e.to_string()),
            Encoder::Arrow(w) => w.write(batch).map_err(|e| e.to_string()),
            Encoder::Csv(w) => w.write(&printable(batch)).map_err(|e| e.to_string()),
            Encoder::JsonLines(w) => w.write(&printable(batch)).map_err(|e| e.to_string()),
        }
        .map_err(|why| explain(&self.path, &self.refused, why))
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
        if self.format == Format::Csv && self.rows == 0 {
            // The header line comes with the first batch.
            self.write(&RecordBatch::new_empty(self.schema.clone()))?;
        }
        let path = self.path.clone();
        let mut losses = loss_facts(losses);
        losses.append(&mut self.facts);
        let encoder = self.encoder.take().expect("an output is finished once");
        let mut destination =
            end(encoder, &losses).map_err(|why| explain(&path, &self.refused, why))?;
        destination.flush().map_err(|e| io_error(&path, "write", e))?;
        drop(destination);
        if let Some(mut partial) = self.partial.take() {
            if self.format == Format::Arrow {
                restate_schema(&partial.now, &self.schema, losses)
                    .map_err(|e| io_error(&path, "write", e))?;
            }
            fs::rename(&partial.now, &partial.then).map_err(|e| io_error(&path, "rename", e))?;
            partial.keep = true;
        }
        Ok(self.rows)
    }
}

fn loss_facts(losses: &BTreeMap<String, u64>) -> Vec<(String, String)> {
    let total: u64 = losses.values().sum();
    let each = losses.iter().map(|(name, n)| (format!("laneway.lost.{name}"), n.to_string()));
    each.chain([("laneway.lost.total".to_owned(), total.to_string())]).collect()
}

/// An Arrow stream has its schema in front, where nothing was known of losses yet: writes the file
/// again with a schema that states them, the batches byte for byte as they are.
fn restate_schema(path: &Path, schema: &Schema, losses: Vec<(String, String)>) -> io::Result<()> {
    let head = |schema: &Schema| -> io::Result<Vec<u8>> {
        // A writer writes the schema message when it is made; `Vec` keeps what it wrote.
        let mut bytes = Vec::new();
        let writer = arrow_ipc::writer::StreamWriter::try_new(&mut bytes, schema);
        drop(writer.map_err(io::Error::other)?);
        Ok(bytes)
    };
    let mut metadata = schema.metadata().clone();
    metadata.extend(losses);
    let stated = schema.clone().with_metadata(metadata);
    let again = path.with_extension("partial.again");
    let copied = (|| {
        let mut from = File::open(path)?;
        let mut to = BufWriter::with_capacity(BUFFER_BYTES, File::create(&again)?);
        to.write_all(&head(&stated)?)?;
        from.seek(SeekFrom::Start(head(schema)?.len() as u64))?;
        io::copy(&mut from, &mut to)?;
        to.flush()?;
        fs::rename(&again, path)
    })();
    if copied.is_err() {
        let _ = fs::remove_file(&again);
    }
    copied
}

/// Creates what rows are written to: a partial file, or the device or pipe that has the name.
fn create(path: &Path) -> io::Result<(File, Option<Partial>)> {
    let Some(file) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
    };
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Renaming over it would replace the device itself.
        Ok(there) if !there.is_file() => {
            return Ok((File::options().write(true).open(path)?, None));
        }
        _ => {}
    }
    let mut name = file.to_owned();
    name.push(".partial");
    let now = path.with_file_name(name);
    let file = File::create(&now)?;
    Ok((file, Some(Partial { now, then: path.to_owned(), keep: false })))
}

/// Writes what stands at the end of a format.
fn end(encoder: Encoder, losses: &[(String, String)]) -> Result<Destination, String> {
    Ok(match encoder {
        Encoder::Parquet(mut w) => {
            for (key, value) in losses {
                w.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
            }
            w.into_inner().map_err(|e| e.to_string())?
        }
        Encoder::Arrow(mut w) => {
            w.finish().map_err(|e| e.to_string())?;
            w.into_inner().map_err(|e| e.to_string())?
        }
        Encoder::Csv(w) => w.into_inner(),
        Encoder::JsonLines(mut w) => {
            w.finish().map_err(|e| e.to_string())?;
            w.into_inner()
        }
    })
}

fn encoder(format: Format, schema: SchemaRef, to: Destination) -> Result<Encoder, String> {
    Ok(match format {
        Format::Parquet => {
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                .set_created_by(format!("laneway {}", env!("CARGO_PKG_VERSION")))
                .build();
            let writer = ArrowWriter::try_new(to, schema, Some(properties));
            Encoder::Parquet(Box::new(writer.map_err(|e| e.to_string())?))
        }
        Format::Arrow => {
            let writer = arrow_ipc::writer::StreamWriter::try_new(to, &schema);
            Encoder::Arrow(Box::new(writer.map_err(|e| e.to_string())?))
        }
        Format::Csv => {
            let writer = arrow_csv::WriterBuilder::new().with_header(true).build(to);
            Encoder::Csv(Box::new(writer))
        }
        Format::JsonLines => {
            let builder = arrow_json::WriterBuilder::new().with_explicit_nulls(true);
            Encoder::JsonLines(Box::new(builder.build(to)))
        }
    })
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

fn io_error(path: &str, doing: &'static str, source: io::Error) -> OutputError {
    let hint = match source.kind() {
        io::ErrorKind::PermissionDenied => "choose a place you may write to",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "create the folder first",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::StorageFull => "free some space, or write elsewhere",
        io::ErrorKind::BrokenPipe => "the program that read the rows has ended",
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
