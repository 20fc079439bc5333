//! The byte that says of what kind a value is: in snapshots, in value stores, and in an entry whose value is there.

pub(super) const TEXT: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const HASH: u8 = 3;
pub(super) const SORTED: u8 = 4;
pub(super) const KIND: u8 = 0x0f;
pub(super) const FORM_TEXT: u8 = 0x10;
pub(super) const FORM_RAW: u8 = 0x20;
/// The value had outgrown the form for small ones, and stays so.
pub(super) const LARGE: u8 = 0x40;

/// What TYPE says of such a kind.
pub(super) fn name(kind: u8) -> &'static str {
    match kind & KIND {
        LIST => "list",
        SET => "set",
        HASH => "hash",
        SORTED => "zset",
        _ => "string",
    }
}
