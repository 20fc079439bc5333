//! What reports are made of: the page around them, tables, drawings, figures as people read them, scripts.
//!
//! Shared by the report of a race and the page of a trace, so that the same figure looks the same on both. Knows
//! neither: nothing here can tell what a text or a number means.
//!
//! | module | makes |
//! |---|---|
//! | [`document`] | the file around a page, its style, lists and pairs |
//! | [`table`] | tables whose columns carry unit and meaning |
//! | [`drawing`] | SVG: scales with round ticks, lines, boxes, markers |
//! | [`number`], [`text`] | figures for a page, for a terminal |
//! | [`markup`] | escaping |
//! | [`script`] | what runs in the browser |
#![forbid(unsafe_code)]

pub mod document;
pub mod drawing;
pub mod markup;
pub mod number;
pub mod script;
pub mod table;
pub mod text;
