//! ISO base media files (ISO 14496-12) without I/O: box headers, fields, what a movie and its fragments say of their
//! samples. Nothing here trusts a size that a box states.

mod codec;
mod fields;
mod fragment;
mod header;
mod movie;
mod samples;
mod sidx;
mod tree;

pub use codec::{Aac, Elementary, ParameterSets, codec_string};
pub use fields::{Broken, Fields};
pub use fragment::{Fragment, MAX_SAMPLES, Placed, Run, RunSample, TrackFragment};
pub use header::{BoxRef, FourCc, Header, boxes, child, find};
pub use movie::{Defaults, Edit, Entry, Movie, Track};
pub use samples::{Sample, SampleTable};
pub use sidx::{Reference, SegmentIndex};
pub use tree::Node;
