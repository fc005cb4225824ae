//! Rules: which flows, and what is done to them. Rule files of our own in TOML or YAML and Fluxzy's YAML become one
//! [`Program`], which the stage [`Rules`] binds to the host of each plan.
//!
//! Read it from the outside in: [`read`] and [`file`] are what stands on disk, [`when`] and [`cond`] the conditions,
//! [`action`] and [`given`] the actions with their parameters, [`program`] makes both ready, [`bound`] carries them out.
#![forbid(unsafe_code)]

mod act;
pub mod action;
mod body;
mod bound;
mod cond;
mod config;
mod cookies;
mod dates;
mod error;
mod exec;
mod expect;
pub mod explain;
mod faults;
mod file;
mod files;
mod fluxzy;
pub mod given;
mod hold;
mod index;
mod json;
mod messages;
pub mod mitmproxy;
mod needs;
mod originals;
mod params;
mod paths;
pub mod phases;
mod program;
mod read;
mod readings;
mod replay;
mod sample;
mod script;
mod service;
mod sessions;
mod stage;
mod state;
mod surroundings;
mod template;
mod text;
pub mod trial;
mod view;
mod when;

pub use cond::Cond;
pub use config::{OnFailure, RulesConfig};
pub use error::{LoadError, Problem};
pub use expect::Expectation;
pub use file::{RuleFile, schema};
pub use fluxzy::{ACTION_KINDS, FILTER_KINDS};
pub use hold::{Decision, Held, Holds};
pub use program::{Program, Rule};
pub use read::{Form, Source};
pub use replay::{Recorded, Recordings};
pub use sample::{Sample, parse_url};
pub use service::{Duplex, Opener, Service, ServiceDef};
pub use stage::Rules;
pub use surroundings::{Means, Surroundings};
pub use template::FACTS;

/// A GET of a URL, for trials.
pub fn trial_asked(url: &str) -> expect::Asked {
    expect::Asked { url: url.to_owned(), ..expect::Asked::default() }
}
