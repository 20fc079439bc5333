//! Scripts and style that several pages share, as text to be embedded.
//!
//! Plain scripts, no modules: a page puts them between `<script>` and `</script>`, after its own `"use strict"`, at its
//! end. Each adds to what the page holds already, so that a page without scripts loses comfort and no content.
//!
//! | part | expects | adds |
//! |---|---|---|
//! | [`TABLES`] | `table.sortable` with one row of heads; `data-value` on cells that sort by value, `.absent` on dashes, `.number` on heads of figures | sorting by click and by keys |
//! | [`READINGS`] | `<title>` in shapes of SVG, or `data-reading` | a read-out at the pointer; `readAt(event, text)` and `hideReadOut()` for canvases |
//! | [`STYLE`] | `--ink` and `--paper` | what both look like |

/// Tables that sort.
pub const TABLES: &str = include_str!("../assets/tables.js");
/// The read-out that follows the pointer.
pub const READINGS: &str = include_str!("../assets/reading.js");
/// The style of both.
pub const STYLE: &str = include_str!("../assets/parts.css");
