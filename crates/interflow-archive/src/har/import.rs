//! Reads HAR entry by entry, without loading the whole archive.

use std::fmt;
use std::io::{self, BufRead, BufReader};

use interflow_codec::json::whole_pairs_reader;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::entry::{HarPages, flow};
use crate::{FlowSink, ImportError, ImportReport, Result};

/// Imports the flows of an uncompressed HAR without byte order mark.
///
/// # Errors
/// Invalid HAR, with the location; flows imported before remain.
pub fn import(file: impl BufRead, sink: FlowSink<'_>) -> Result<ImportReport> {
    let (report, pages) = (ImportReport::default(), HarPages::new());
    let mut reader = HarReader { sink, report, failed: None, index: None, found: false, pages };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(whole_pairs_reader(file)));
    let outcome =
        (&mut json).deserialize_any(HarObjectSeed { reader: &mut reader, is_log: false }).and_then(|()| json.end());
    let HarReader { report, failed, index, found, .. } = reader;
    // An error of the sink ends the parser with an error of its own; the cause is kept aside.
    if let Some(source) = failed {
        return Err(ImportError::Io { source, report });
    }
    match outcome {
        Ok(()) if found => Ok(report),
        Ok(()) => Err(ImportError::Malformed {
            place: "log.entries".to_owned(),
            problem: "missing: a HAR is an object {\"log\": {\"entries\": […]}}".to_owned(),
            report,
        }),
        Err(e) if e.is_io() => Err(ImportError::Io { source: e.into(), report }),
        Err(e) => {
            let path = index.map(|i| format!("log.entries[{i}], ")).unwrap_or_default();
            let text = e.to_string();
            // serde_json appends the position, which is given with the place already.
            let problem = text.split(" at line ").next().unwrap_or(&text).to_owned();
            let place = format!("{path}line {} column {}", e.line(), e.column());
            let end = if e.is_eof() { "; the HAR is incomplete" } else { "" };
            Err(ImportError::Malformed { place, problem: format!("{problem}{end}"), report })
        }
    }
}

struct HarReader<'s> {
    sink: FlowSink<'s>,
    report: ImportReport,
    failed: Option<io::Error>,
    index: Option<u64>,
    /// Whether `log.entries` was found.
    found: bool,
    /// The pages found before the entries; later ones are ignored.
    pages: HarPages,
}

/// Maximum number of pages remembered.
const MAX_PAGES: usize = 10_000;

/// The object of the file, or its member `log`.
struct HarObjectSeed<'r, 's> {
    reader: &'r mut HarReader<'s>,
    is_log: bool,
}

impl<'de> DeserializeSeed<'de> for HarObjectSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for HarObjectSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_log {
            true => "'log' to be an object with the member 'entries'",
            false => "an object with the member 'log'",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match (self.is_log, name.as_str()) {
                (false, "log") => map.next_value_seed(HarObjectSeed { reader: &mut *self.reader, is_log: true })?,
                (true, "entries") => map.next_value_seed(HarEntriesSeed(&mut *self.reader))?,
                (true, "pages") => self.reader.take_pages(&map.next_value::<Value>()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct HarEntriesSeed<'r, 's>(&'r mut HarReader<'s>);

impl<'de> DeserializeSeed<'de> for HarEntriesSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for HarEntriesSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'log.entries' to be an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let reader = self.0;
        reader.found = true;
        for index in 0.. {
            reader.index = Some(index);
            // One entry is held in memory at a time.
            let Some(value) = seq.next_element::<Value>()? else { break };
            reader.entry(index, &value).map_err(|e| {
                reader.failed = Some(e);
                A::Error::custom("stopped")
            })?;
        }
        reader.index = None;
        Ok(())
    }
}

impl HarReader<'_> {
    fn take_pages(&mut self, pages: &Value) {
        let pages = pages.as_array().into_iter().flatten().take(MAX_PAGES);
        self.pages.extend(pages.filter_map(|page| Some((page["id"].as_str()?.to_owned(), page.clone()))));
    }

    fn entry(&mut self, index: u64, value: &Value) -> io::Result<()> {
        let mut notes = Vec::new();
        match flow(index, value, &self.pages, &mut notes) {
            Ok(flow) => {
                (self.sink)(flow)?;
                self.report.flows += 1;
            }
            Err(problem) => self.report.skip(format!("log.entries[{index}].{problem}")),
        }
        for note in notes {
            self.report.note(format!("log.entries[{index}].{note}"));
        }
        Ok(())
    }
}
