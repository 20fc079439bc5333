//! What columns are made of: a name, a type, a unit and a definition, and the code that fills one from rows.

use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, PrimitiveArray, RecordBatch, StringArray,
    types::{ArrowPrimitiveType, TimestampNanosecondType},
};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::{collections::HashMap, sync::Arc};

/// Makes a column's array of a batch of rows.
pub(super) type Filler<R> = dyn Fn(&[R]) -> ArrayRef + Send + Sync;

pub(super) struct Column<R> {
    pub(super) field: Field,
    pub(super) fill: Box<Filler<R>>,
}

/// What a column says about itself, besides name and type.
pub(super) struct About {
    pub(super) unit: &'static str,
    pub(super) definition: String,
    pub(super) alias: Vec<(&'static str, String)>,
}

pub(super) fn about(unit: &'static str, definition: impl Into<String>) -> About {
    About { unit, definition: definition.into(), alias: Vec::new() }
}

impl About {
    pub(super) fn alias(mut self, of: &'static str, name: impl Into<String>) -> About {
        self.alias.push((of, name.into()));
        self
    }

    pub(super) fn field(self, name: &str, data_type: DataType, nullable: bool) -> Field {
        let mut metadata = HashMap::from([
            ("unit".to_owned(), self.unit.to_owned()),
            ("definition".to_owned(), self.definition),
        ]);
        for (of, alias) in self.alias {
            metadata.insert(format!("alias.{of}"), alias);
        }
        Field::new(name, data_type, nullable).with_metadata(metadata)
    }
}

/// A column of numbers that every row has.
pub(super) fn number<R: 'static, T: ArrowPrimitiveType>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> T::Native + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, T::DATA_TYPE, false),
        fill: Box::new(move |rows| {
            Arc::new(PrimitiveArray::<T>::from_iter_values(rows.iter().map(&value)))
        }),
    }
}

/// A column of numbers that some rows lack.
pub(super) fn optional<R: 'static, T: ArrowPrimitiveType>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> Option<T::Native> + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, T::DATA_TYPE, true),
        fill: Box::new(move |rows| {
            Arc::new(rows.iter().map(&value).collect::<PrimitiveArray<T>>())
        }),
    }
}

/// A column of times. A time that is not known, and one after 2262 for which the type has no room, is
/// null.
pub(super) fn timestamp<R: 'static>(
    name: &str,
    about: About,
    offset_ns: i64,
    value: impl Fn(&R) -> Option<u64> + Send + Sync + 'static,
) -> Column<R> {
    let data_type = DataType::Timestamp(arrow_schema::TimeUnit::Nanosecond, Some("UTC".into()));
    Column {
        field: about.field(name, data_type, true),
        fill: Box::new(move |rows| {
            let unix_ns = |r| i64::try_from(value(r)?).ok()?.checked_add(offset_ns);
            let array: PrimitiveArray<TimestampNanosecondType> = rows.iter().map(unix_ns).collect();
            Arc::new(array.with_timezone("UTC"))
        }),
    }
}

/// A column of 16-byte addresses; rows without an IP header lack it.
pub(super) fn address<R: 'static>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> Option<[u8; 16]> + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, DataType::FixedSizeBinary(16), true),
        fill: Box::new(move |rows| {
            let mut bytes = Vec::with_capacity(rows.len() * 16);
            let mut valid = Vec::with_capacity(rows.len());
            for row in rows {
                let address = value(row);
                bytes.extend(address.unwrap_or_default());
                valid.push(address.is_some());
            }
            let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
            Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(bytes), nulls))
        }),
    }
}

pub(super) fn text<R: 'static>(
    name: &str,
    about: About,
    value: impl Fn(&R) -> &'static str + Send + Sync + 'static,
) -> Column<R> {
    Column {
        field: about.field(name, DataType::Utf8, false),
        fill: Box::new(move |rows| {
            Arc::new(StringArray::from_iter_values(rows.iter().map(&value)))
        }),
    }
}

/// A column of lists of `size` numbers, short ones padded with null.
pub(super) fn list<R: 'static, T: ArrowPrimitiveType>(
    name: &str,
    about: About,
    size: usize,
    value: impl Fn(&R, usize) -> Option<T::Native> + Send + Sync + 'static,
) -> Column<R> {
    let item = Arc::new(Field::new_list_field(T::DATA_TYPE, true));
    let data_type = DataType::FixedSizeList(item.clone(), size as i32);
    Column {
        field: about.field(name, data_type, false),
        fill: Box::new(move |rows| {
            let values: PrimitiveArray<T> =
                rows.iter().flat_map(|r| (0..size).map(|i| value(r, i))).collect();
            Arc::new(FixedSizeListArray::new(item.clone(), size as i32, Arc::new(values), None))
        }),
    }
}

/// The columns of one level and profile.
pub struct Table<R> {
    pub(super) columns: Vec<Column<R>>,
    pub(super) schema: SchemaRef,
}

impl<R> Table<R> {
    pub(super) fn new(columns: Vec<Column<R>>) -> Table<R> {
        let fields: Vec<Field> = columns.iter().map(|c| c.field.clone()).collect();
        Table { columns, schema: Arc::new(Schema::new(fields)) }
    }

    /// The schema, with unit and definition of every field.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Name, type, unit and definition of every column, and what other tools call it.
    pub(crate) fn described(&self) -> Vec<Vec<String>> {
        let describe = |field: &Arc<Field>| {
            let metadata = |key: &str| field.metadata().get(key).cloned().unwrap_or_default();
            let mut others: Vec<String> = field
                .metadata()
                .iter()
                .filter_map(|(key, name)| Some(format!("{}: {name}", key.strip_prefix("alias.")?)))
                .collect();
            others.sort_unstable();
            let null = if field.is_nullable() { ", or null" } else { "" };
            vec![
                field.name().clone(),
                format!("{}{null}", field.data_type()),
                metadata("unit"),
                metadata("definition"),
                others.join("; "),
            ]
        };
        self.schema.fields().iter().map(describe).collect()
    }

    /// One batch of rows.
    pub fn batch(&self, rows: &[R]) -> RecordBatch {
        let arrays = self.columns.iter().map(|c| (c.fill)(rows)).collect();
        RecordBatch::try_new(self.schema.clone(), arrays)
            .expect("every column fills its own field's type")
    }
}
