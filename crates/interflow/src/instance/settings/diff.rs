//! The difference between two texts of a configuration file, with secrets masked.

use interflow_admin::config_masking::{is_secret_key, mask_config};
use interflow_admin::settings::{SettingsDiffKind, SettingsDiffLine};
use interflow_types::secret_names::mask_urls;
use serde_json::Value as Json;
use similar::{Algorithm, ChangeTag, capture_diff_slices, group_diff_ops};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// The changed lines of a configuration file with their surroundings.
pub fn diff(old: &str, new: &str) -> Vec<SettingsDiffLine> {
    diff_texts(&mask(old, None), &mask(new, Some(old)))
}

/// The changed lines of any text with their surroundings.
pub fn diff_texts(old: &str, new: &str) -> Vec<SettingsDiffLine> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let hunks = group_diff_ops(capture_diff_slices(Algorithm::Myers, &old, &new), CONTEXT_LINES);
    let mut lines = Vec::new();
    for (at, hunk) in hunks.iter().enumerate() {
        let starts_later = hunk.first().is_some_and(|op| op.old_range().start > 0 || op.new_range().start > 0);
        if at > 0 || starts_later {
            lines.push(SettingsDiffLine { kind: SettingsDiffKind::Gap, line: None, text: String::new() });
        }
        for change in hunk.iter().flat_map(|op| op.iter_changes(&old, &new)) {
            let (kind, line) = match change.tag() {
                ChangeTag::Equal => (SettingsDiffKind::Same, change.new_index()),
                ChangeTag::Delete => (SettingsDiffKind::Removed, change.old_index()),
                ChangeTag::Insert => (SettingsDiffKind::Added, change.new_index()),
            };
            lines.push(SettingsDiffLine { kind, line: line.map(|n| n + 1), text: change.value().to_owned() });
        }
    }
    lines
}

/// The text with its secrets masked. One that `before` did not have at the same place is marked, so that its change is
/// seen.
fn mask(text: &str, before: Option<&str>) -> String {
    let parsed = |text: &str| toml::from_str::<Json>(text).unwrap_or_default();
    let (open, old) = (parsed(text), before.map(parsed));
    let mut masked = open.clone();
    mask_config(&mut masked);
    let mut replacements = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        find_masked(table.get_ref(), [&open, &masked], old.as_ref(), &mut replacements);
    }
    // From the end, so that the positions before stay right.
    replacements.sort_by_key(|(span, _): &(std::ops::Range<usize>, String)| std::cmp::Reverse(span.start));
    let mut masked_text = text.to_owned();
    for (span, replacement) in replacements {
        masked_text.replace_range(span, &Json::String(replacement).to_string());
    }
    masked_text.split_inclusive('\n').map(mask_comment).collect()
}

fn find_masked(
    table: &DeTable<'_>,
    [open, masked]: [&Json; 2],
    old: Option<&Json>,
    found: &mut Vec<(std::ops::Range<usize>, String)>,
) {
    for (name, value) in table {
        let name = name.get_ref().as_ref();
        find_in_value(value, [&open[name], &masked[name]], old.map(|o| &o[name]), found);
    }
}

fn find_in_value(
    value: &Spanned<DeValue<'_>>,
    [open, masked]: [&Json; 2],
    old: Option<&Json>,
    found: &mut Vec<(std::ops::Range<usize>, String)>,
) {
    match value.get_ref() {
        DeValue::Table(inner) => find_masked(inner, [open, masked], old, found),
        DeValue::Array(list) => {
            for (at, inner) in list.iter().enumerate() {
                find_in_value(inner, [&open[at], &masked[at]], old.map(|o| &o[at]), found);
            }
        }
        DeValue::String(_) if open != masked => {
            let text = masked.as_str().unwrap_or("***");
            let is_new = old.is_some_and(|old| old != open);
            found.push((value.span(), if is_new { format!("{text} (changed)") } else { text.to_owned() }));
        }
        _ => {}
    }
}

/// A line whose comment may hold a key that was commented out.
fn mask_comment(line: &str) -> String {
    let Some(at) = line.find('#') else { return line.to_owned() };
    let (code, comment) = line.split_at(at);
    let end = if comment.ends_with('\n') { "\n" } else { "" };
    if let Some((name, _)) = comment.split_once('=') {
        let name = name.trim_matches(|c: char| c == '#' || c.is_whitespace());
        let key = name.rsplit('.').next().unwrap_or(name);
        if is_secret_key(key) || key == "args" {
            return format!("{code}# {name} = ***{end}");
        }
    }
    format!("{code}{}{end}", mask_urls(comment.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> Vec<String> {
        let sign = |kind| match kind {
            SettingsDiffKind::Same => " ",
            SettingsDiffKind::Removed => "-",
            SettingsDiffKind::Added => "+",
            SettingsDiffKind::Gap => "@",
        };
        diff(old, new).iter().map(|l| format!("{}{}{}", sign(l.kind), l.line.unwrap_or(0), l.text)).collect()
    }

    #[test]
    fn changed_lines_are_shown_with_their_surroundings() {
        let old = (1..=9).map(|n| format!("k{n} = {n}\n")).collect::<String>();
        assert_eq!(
            shown(&old, &old.replace("k8 = 8", "k8 = 80")),
            ["@0", " 5k5 = 5", " 6k6 = 6", " 7k7 = 7", "-8k8 = 8", "+8k8 = 80", " 9k9 = 9"]
        );
        assert_eq!(shown("", "[a]\n"), ["+1[a]"]);
        assert!(diff(&old, &old).is_empty());
    }

    #[test]
    fn secrets_are_masked_in_values_urls_and_comments() {
        let old = "# token = \"t-1\" of Ann\n# args = ['--token', 't-2']\n# via http://me:pw@old.test\n[llm.provider.x]\napi_key = 'sk-1' # k\n[keys.provider]\nopenai = \"sk-2\"\n[[upstream.proxy]]\nvia = ['http://me:pw@a.test']\n";
        let new = old.replace("'sk-1'", "'sk-9'").replace("['http://me:pw@a.test']", "['http://me:other@a.test']");
        let lines = shown(old, &new).join("\n");
        for secret in ["t-1", "t-2", "pw", "other", "sk-1", "sk-2", "sk-9"] {
            assert!(!lines.contains(secret), "{secret}:\n{lines}");
        }
        assert!(lines.contains("-5api_key = \"***\" # k\n+5api_key = \"*** (changed)\" # k"), "{lines}");
        assert!(lines.contains("+9via = [\"http://***@a.test (changed)\"]"), "{lines}");
        assert!(lines.contains(" 7openai = \"***\""), "{lines}");
    }
}
