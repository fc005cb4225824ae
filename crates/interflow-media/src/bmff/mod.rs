//! ISO base media files (ISO 14496-12) without I/O: box headers, fields, movie and fragment structures. Declared sizes
//! are never trusted.

mod box_reader;
mod codec;
mod fragment;
mod header;
mod movie;
mod samples;
mod sidx;
mod tree;

pub use box_reader::BoxReader;
pub use codec::{AacConfig, ElementaryStreamInfo, ParameterSets, codec_string};
pub use fragment::{LocatedSample, MAX_SAMPLES, MovieFragment, RunSample, TrackFragment, TrackRun};
pub use header::{BoxError, BoxHeader, BoxRef, FourCc, Result, boxes, child, find, first_of_kind, init_length};
pub use movie::{EditListEntry, FragmentDefaults, Movie, MovieTrack, SampleEntry};
pub use samples::{IndexedSample, SampleTable};
pub use sidx::{IndexReference, SegmentIndex};
pub use tree::BoxNode;
