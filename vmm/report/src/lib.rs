//! Output for people and programs: tables, charts, pages, timelines, JSON. Converts studies to text;
//! nothing here prints or measures.

#![forbid(unsafe_code)]

pub mod brief;
pub mod columns;
pub mod document;
pub mod faults;
pub mod figures;
pub mod html;
pub mod lists;
mod names;
pub mod perfetto;
pub mod replay;
pub mod si;
pub mod trace_text;
pub mod words;
mod work;
mod yields;
