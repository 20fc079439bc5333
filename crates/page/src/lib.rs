//! What reports are written with: escaping for HTML and SVG, figures as people read them, scripts that pages share.
//!
//! Shared by the report of a race and the page of a trace, so that the same figure looks the same on both. Knows
//! neither: nothing here can tell what a text or a number means.
#![forbid(unsafe_code)]

pub mod markup;
pub mod number;
pub mod script;
pub mod text;
