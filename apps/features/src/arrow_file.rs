//! The Arrow IPC file format (Feather, version 2), written without seeking: batches behind each other, and
//! at the end a footer that says where each one is.
//!
//! Readers take the schema from the footer, so what is known only at the end (losses, whether the rows
//! are all there) can be in its metadata. That is why the library's own writer, whose footer repeats the
//! schema of the beginning, is not used. Our columns have no dictionaries, so there are none in here.
//!
//! Source: <https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format>.

use arrow_array::RecordBatch;
use arrow_ipc::{
    Block, FooterBuilder, MetadataVersion,
    convert::IpcSchemaEncoder,
    writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteOptions, write_message},
};
use arrow_schema::{ArrowError, Schema};
use std::io::Write;

const MAGIC: &[u8; 6] = b"ARROW1";
/// What stands where a message would begin, and is none: the end of the stream inside the file.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Every message begins at a multiple of this.
const ALIGNMENT_BYTES: u8 = 64;

pub(crate) struct ArrowFile<W> {
    to: W,
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    /// Where the next message begins.
    at: usize,
    blocks: Vec<Block>,
}

impl<W: Write> ArrowFile<W> {
    /// Writes what stands in front of the batches.
    ///
    /// # Errors
    /// When `to` takes no more.
    pub(crate) fn begin(mut to: W, schema: &Schema) -> Result<ArrowFile<W>, ArrowError> {
        let alignment = usize::from(ALIGNMENT_BYTES);
        let options = IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5)?;
        let mut head = vec![0; alignment];
        head[..MAGIC.len()].copy_from_slice(MAGIC);
        to.write_all(&head)?;
        let generator = IpcDataGenerator::default();
        let mut dictionaries = DictionaryTracker::new(true);
        let schema =
            generator.schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options);
        let at = head.len();
        let mut file = ArrowFile { to, options, generator, dictionaries, at, blocks: Vec::new() };
        file.message(schema)?;
        Ok(file)
    }

    fn message(&mut self, message: EncodedData) -> Result<Block, ArrowError> {
        let (head_bytes, body_bytes) = write_message(&mut self.to, message, &self.options)?;
        let block = Block::new(self.at as i64, head_bytes as i32, body_bytes as i64);
        self.at += head_bytes + body_bytes;
        Ok(block)
    }

    /// Appends a batch of the schema that the file began with.
    ///
    /// # Errors
    /// When the destination takes no more.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let context = &mut Default::default();
        let (_, message) =
            self.generator.encode(batch, &mut self.dictionaries, &self.options, context)?;
        let block = self.message(message)?;
        self.blocks.push(block);
        Ok(())
    }

    /// Writes the footer. Its schema is the one that readers see: the same fields, with metadata that is
    /// known by now.
    ///
    /// # Errors
    /// When the destination takes no more.
    pub(crate) fn finish(mut self, schema: &Schema) -> Result<W, ArrowError> {
        self.to.write_all(&END_OF_STREAM)?;
        let mut encoder = IpcSchemaEncoder::new();
        let mut builder = encoder.schema_to_fb(schema);
        builder.reset();
        let batches = builder.create_vector(&self.blocks);
        let none: [Block; 0] = [];
        let dictionaries = builder.create_vector(&none);
        let schema = encoder.schema_to_fb_offset(&mut builder, schema);
        let mut footer = FooterBuilder::new(&mut builder);
        footer.add_version(MetadataVersion::V5);
        footer.add_schema(schema);
        footer.add_dictionaries(dictionaries);
        footer.add_recordBatches(batches);
        let footer = footer.finish();
        builder.finish(footer, None);
        let bytes = builder.finished_data();
        self.to.write_all(bytes)?;
        self.to.write_all(&(bytes.len() as i32).to_le_bytes())?;
        self.to.write_all(MAGIC)?;
        Ok(self.to)
    }
}
