//! Distinguishes negated query terms (`-path:/health`) from options, which also begin with a dash.

use std::ffi::OsString;

use interflow_query::Key;

/// Rewrites negated query terms to the equivalent `!` form, so that the option parser ignores them. `flows` and `top`
/// take queries.
pub fn normalize_negated_terms(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let commands = ["flows", "top", "exec", "--"];
    let first = words.iter().position(|w| commands.iter().any(|c| w == c));
    if let Some(at) = first
        && (words[at] == "flows" || words[at] == "top")
    {
        for word in &mut words[at..] {
            if let Some(opposite) = word.to_str().and_then(negated_term) {
                *word = opposite.into();
            }
        }
    }
    words
}

/// `!path:/x` for `-path:/x`; `None` for an option.
fn negated_term(word: &str) -> Option<String> {
    let term = word.strip_prefix('-')?;
    let (key, _) = term.split_once(':')?;
    let begins = key.split('.').next().unwrap_or(key);
    let is_key = Key::find(key).is_some() || Key::find(begins).is_some() || matches!(begins, "req" | "resp");
    is_key.then(|| format!("!{term}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let words = normalize_negated_terms(line.split(' ').map(OsString::from));
        words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_negated_query_terms_are_rewritten() {
        for (line, expected) in [
            ("interflow flows list -path:/x -n 5", "interflow flows list !path:/x -n 5"),
            (
                "interflow --data-dir x flows tail -is:open -header.a:b",
                "interflow --data-dir x flows tail !is:open !header.a:b",
            ),
            ("interflow flows replay last -HX-A:1 -H X-B:2", "interflow flows replay last -HX-A:1 -H X-B:2"),
            ("interflow top -is:open", "interflow top !is:open"),
            ("interflow flows list -nokey:1 --all", "interflow flows list -nokey:1 --all"),
            ("interflow exec flows -path:/x", "interflow exec flows -path:/x"),
            ("interflow exec -- flows list -path:/x", "interflow exec -- flows list -path:/x"),
        ] {
            assert_eq!(read(line), expected);
        }
    }
}
