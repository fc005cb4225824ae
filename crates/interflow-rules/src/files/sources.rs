//! Reads rule files: format, includes, and the location of errors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_codec::document::{Document, DocumentError};
use serde::Deserialize;

use crate::error::{RuleLoadError, RuleProblem};
use crate::files::rule_file::RuleFile;
use crate::files::rule_format::RuleFormat;
use crate::state::runtime::RuleRuntime;
use interflow_query::with_suggestion;

pub use interflow_codec::document::PathSegment;

/// Maximum size of a rule file in bytes: 16 MiB.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// Maximum include depth; a cycle is reported before it reaches this.
const MAX_INCLUDE_DEPTH: usize = 16;

/// The format of a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleFileFormat {
    Toml,
    /// YAML, of which JSON is a subset.
    Yaml,
}

impl RuleFileFormat {
    /// By the file name; for other endings by the first line that is not a comment, where YAML is the default.
    pub fn detect(name: &str, text: &str) -> Self {
        let ending = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "toml" => Self::Toml,
            "yaml" | "yml" | "json" => Self::Yaml,
            _ => {
                let first =
                    text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#')).unwrap_or_default();
                let toml =
                    first.starts_with("[[") || first.starts_with('[') && first.ends_with(']') || first.contains(" = ");
                if toml { Self::Toml } else { Self::Yaml }
            }
        }
    }
}

/// The text of a rule file and where it came from.
#[derive(Clone, Debug)]
pub struct RuleFileSource {
    /// The name in messages: the path, or what the caller gave.
    pub name: String,
    /// The file, if any: relative paths are resolved beside it.
    pub path: Option<PathBuf>,
    pub text: String,
}

/// A rule file whose text is parsed.
#[derive(Debug)]
pub struct ParsedRuleFile {
    pub(crate) source: RuleFileSource,
    document: Document,
    pub(crate) content: RuleFileContent,
}

#[derive(Debug)]
pub(crate) enum RuleFileContent {
    Own(RuleFile),
    /// A file of another program, with its format.
    Foreign(Arc<dyn RuleFormat>, serde_json::Value),
}

impl ParsedRuleFile {
    /// An error at a path into the file.
    pub fn problem(&self, path: &[PathSegment<'_>], rule: Option<&str>, message: impl Into<String>) -> RuleProblem {
        let (line, column) = self.document.locate(path);
        let (file, rule) = (self.source.name.clone(), rule.map(ToOwned::to_owned));
        RuleProblem { file, line, column, rule, message: message.into() }
    }
}

impl RuleFileSource {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, is too large or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, RuleProblem> {
        let name = path.display().to_string();
        let failed = |message: String| RuleProblem { file: name.clone(), message, ..RuleProblem::default() };
        let size = std::fs::metadata(path).map_err(|e| failed(format!("the file cannot be read: {e}")))?.len();
        if size > MAX_FILE_SIZE {
            return Err(failed(format!("the file has {size} bytes: a rule file has at most {MAX_FILE_SIZE}")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| failed(format!("the file cannot be read: {e}")))?;
        Ok(Self { name, path: Some(path.to_owned()), text })
    }

    /// A text without a file: its relative paths are used as they are.
    pub fn from_text(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.into(), path: None, text: text.into() }
    }

    /// Parses the text alone: nothing that it names is read.
    pub(crate) fn parse(self, formats: &[Arc<dyn RuleFormat>]) -> Result<ParsedRuleFile, RuleProblem> {
        let read = || {
            let (document, content) = match RuleFileFormat::detect(&self.name, &self.text) {
                RuleFileFormat::Toml => (Document::parse_toml(&self.text)?, None),
                RuleFileFormat::Yaml => {
                    let document = Document::parse_yaml(&self.text)?;
                    let content = foreign_content(&document, formats)?;
                    (document, content)
                }
            };
            let content = match content {
                Some(content) => content,
                None => RuleFileContent::Own(RuleFile::deserialize(document.deserializer())?),
            };
            Ok((document, content))
        };
        match read() {
            Ok((document, content)) => Ok(ParsedRuleFile { source: self, document, content }),
            Err(e) => {
                let e: DocumentError = e;
                let (line, column) = e.position().unwrap_or_default();
                Err(RuleProblem { file: self.name, line, column, rule: None, message: with_suggestion(e.message()) })
            }
        }
    }
}

/// The content of another program's file, and of an empty one.
fn foreign_content(
    document: &Document,
    formats: &[Arc<dyn RuleFormat>],
) -> Result<Option<RuleFileContent>, DocumentError> {
    let value = serde_json::Value::deserialize(document.deserializer())?;
    if let Some(format) = formats.iter().find(|f| f.detect(&value)) {
        return Ok(Some(RuleFileContent::Foreign(Arc::clone(format), value)));
    }
    Ok(value.is_null().then(|| RuleFileContent::Own(RuleFile::default())))
}

/// Reads sources and their includes; an included file precedes the one that includes it.
///
/// # Errors
/// All errors; a cycle of includes.
pub(crate) fn read_all(
    sources: Vec<RuleFileSource>,
    around: &RuleRuntime,
) -> Result<Vec<ParsedRuleFile>, RuleLoadError> {
    let mut reading = SourceLoader { around, parsed: Vec::new(), seen: HashSet::new(), problems: Vec::new() };
    for source in sources {
        reading.add(source, &mut Vec::new());
    }
    let SourceLoader { parsed, problems, .. } = reading;
    if problems.is_empty() { Ok(parsed) } else { Err(RuleLoadError { problems, notes: Vec::new() }) }
}

struct SourceLoader<'f> {
    around: &'f RuleRuntime,
    parsed: Vec<ParsedRuleFile>,
    seen: HashSet<PathBuf>,
    problems: Vec<RuleProblem>,
}

impl SourceLoader<'_> {
    fn add(&mut self, source: RuleFileSource, above: &mut Vec<PathBuf>) {
        let real = source.path.as_ref().map(|p| p.canonicalize().unwrap_or_else(|_| p.clone()));
        // Several files may include the same one.
        if let Some(real) = &real
            && !self.seen.insert(real.clone())
        {
            return;
        }
        let parsed = match source.parse(&self.around.formats) {
            Ok(parsed) => parsed,
            Err(problem) => return self.problems.push(problem),
        };
        if let RuleFileContent::Own(file) = &parsed.content {
            above.extend(real.clone());
            for (i, include) in file.include.0.iter().enumerate() {
                self.include(&parsed, i, include, above);
            }
            if real.is_some() {
                above.pop();
            }
        }
        self.parsed.push(parsed);
    }

    fn include(&mut self, parsed: &ParsedRuleFile, i: usize, include: &Path, above: &mut Vec<PathBuf>) {
        let folder = parsed.source.path.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let path = folder.join(include);
        let at = [PathSegment::Key("include"), PathSegment::Index(i)];
        // Compared by canonical path, so that another spelling or a link does not hide the cycle.
        if let Ok(real) = path.canonicalize()
            && let Some(start) = above.iter().position(|p| *p == real)
        {
            let mut chain: Vec<String> = above[start..].iter().map(|p| short_name(p)).collect();
            chain.push(short_name(&real));
            let message = format!("a cycle of includes: {}; take one of them out", chain.join(" includes "));
            return self.problems.push(parsed.problem(&at, None, message));
        }
        if above.len() >= MAX_INCLUDE_DEPTH {
            let message = format!("includes are nested deeper than {MAX_INCLUDE_DEPTH}");
            return self.problems.push(parsed.problem(&at, None, message));
        }
        // Before it is read: an error would show a part of it.
        if let Err(e) = self.around.private_files.check_read(&path) {
            return self.problems.push(parsed.problem(&at, None, e.to_string()));
        }
        match RuleFileSource::read(&path) {
            Ok(source) => self.add(source, above),
            Err(p) => self.problems.push(parsed.problem(&at, None, format!("{}: {}", path.display(), p.message))),
        }
    }
}

fn short_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(name: &str, text: &str) -> String {
        read_all(vec![RuleFileSource::from_text(name, text)], &RuleRuntime::default()).unwrap_err().to_string()
    }

    #[test]
    fn errors_have_line_column_and_suggestion() {
        for (name, text, message) in [
            ("r.toml", "[[rules]]\nnaem = 'x'\n", "r.toml:2:1: unknown key `naem`: did you mean `name`?"),
            (
                "r.toml",
                "[[rules]]\nwhen = 'hots:a'\n",
                "r.toml:2:8: the query `hots:a`, column 1: unknown key 'hots': did you mean 'host'?",
            ),
            ("r.toml", "[[rules]]\nthen = ['abrot']\n", "r.toml:2:9: unknown action `abrot`: did you mean `abort`?"),
            (
                "r.toml",
                "[[rules]]\nthen = [{block = {stats = 1}}]",
                "r.toml:2:19: unknown key `stats`: did you mean `status`?",
            ),
            ("r.yaml", "rules:\n  - naem: x\n", "r.yaml:2:5: unknown key `naem`: did you mean `name`?"),
            (
                "r.yaml",
                "rules:\n  - when: hots:a\n",
                "r.yaml:2:11: the query `hots:a`, column 1: unknown key 'hots': did you mean 'host'?",
            ),
            (
                "r.yaml",
                "rules:\n  - then:\n      - abrot\n",
                "r.yaml:3:9: unknown action `abrot`: did you mean `abort`?",
            ),
            (
                "r.yaml",
                "rules:\n  - then:\n      - {tag: '${hots}'}\n",
                "r.yaml:3:15: unknown variable `${hots}`: did you mean `${host}`?",
            ),
            ("r.yaml", "rules:\n  - phase: requst\n", "r.yaml:2:12: unknown phase `requst`: did you mean `request`?"),
        ] {
            assert_eq!(fails(name, text), message, "{text}");
        }
        assert!(fails("r.yaml", "rules: [").starts_with("r.yaml:"));
        assert!(fails("r.toml", "x = = 1").starts_with("r.toml:1:"));
    }

    #[test]
    fn excessive_yaml_aliases_and_nesting_are_refused_with_position() {
        let laughs: String =
            (1..30).map(|i| format!("a{i}: &a{i} [*a{}, *a{}]\n", i - 1, i - 1)).collect::<String>() + "rules: []\n";
        for (text, place, says) in [
            (format!("a0: &a0 x\n{laughs}"), "r.yaml:30:", "aliases"),
            ((0..2000).map(|i| format!("{}a:\n", " ".repeat(i))).collect(), "r.yaml:129:", "nested deeper"),
            ("rules: []\nrules: []\n".into(), "r.yaml:2:1: ", "duplicate key `rules`"),
        ] {
            let error = fails("r.yaml", &text);
            assert!(error.starts_with(place) && error.contains(says), "{error}");
        }
    }

    #[test]
    fn format_is_detected_by_name_or_content() {
        for (name, text, form) in [
            ("a.toml", "", RuleFileFormat::Toml),
            ("a.yml", "[[x]]", RuleFileFormat::Yaml),
            ("-", "# c\n[[rules]]", RuleFileFormat::Toml),
            ("-", "rules:\n- x", RuleFileFormat::Yaml),
            ("-", "{\"rules\": []}", RuleFileFormat::Yaml),
        ] {
            assert_eq!(RuleFileFormat::detect(name, text), form, "{name} {text}");
        }
    }

    #[test]
    fn includes_precede_and_cycles_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a.yaml", "include: [b.yaml, c.toml]\nrules: [{name: a}]");
        write("b.yaml", "include: c.toml\nrules: [{name: b}]");
        write("c.toml", "[[rules]]\nname = 'c'");
        let around = RuleRuntime::default();
        let read = |name: &str| read_all(vec![RuleFileSource::read(&dir.path().join(name)).unwrap()], &around);
        let names: Vec<_> =
            read("a.yaml").unwrap().iter().map(|p| short_name(p.source.path.as_ref().unwrap())).collect();
        assert_eq!(names, ["c.toml", "b.yaml", "a.yaml"]);
        write("c.toml", "include = 'a.yaml'");
        let error = read("a.yaml").unwrap_err().to_string();
        assert!(
            error.contains("c.toml:1:11: a cycle of includes: a.yaml includes b.yaml includes c.toml includes a.yaml"),
            "{error}"
        );
        write("c.toml", "include = 'none.yaml'");
        assert!(read("c.toml").unwrap_err().to_string().contains("none.yaml: the file cannot be read"));
    }
}
