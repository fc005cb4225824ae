//! Rules that agents propose: checked, tried on recorded flows, and kept until the operator applies or dismisses them.
//! A proposal changes nothing by itself.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use interflow_rules::{RuleFileSource, RuleProgram, explain};
use interflow_store::{FlowRecord, ListOptions};
use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::blocking::run_query;
use crate::api::edited::edits::check_text;
use crate::api::edited::rules::{
    RulesView, active_rules, check_host_access, flow_fixture, rejected_rules, write_and_activate,
};
use crate::api::input::{StrictJson, query};
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::mcp::secret_masking::mask_path;
use crate::rule_proposals::{MAX_PROPOSALS, ProposalMatch, RuleProposal};
use crate::state::SharedState;

/// Maximum size of a proposal and of its reason, in bytes.
const MAX_TEXT: usize = 64 << 10;
const MAX_REASON: usize = 2000;
/// Flows on which a proposal is tried: the newest ones.
const MAX_TRIED: usize = 100;
/// Flows with larger bodies are not tried: all of a body is needed.
const MAX_BODY: u64 = 1 << 20;
/// Matches that are reported.
const MAX_MATCHES: usize = 50;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProposalInput {
    /// The rules, as the text of a rule file in YAML or TOML.
    text: String,
    /// Why they are proposed.
    #[serde(default)]
    reason: String,
    /// The flows on which they are tried; the newest ones when it is empty.
    #[serde(default)]
    query: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ProposalList {
    proposals: Vec<RuleProposal>,
}

/// `GET /rules/proposals`
pub async fn list(state: SharedState) -> Json<ProposalList> {
    Json(ProposalList { proposals: state.proposals.list() })
}

/// `POST /rules/proposals`: an invalid text is refused with every problem found, and not kept.
pub async fn propose(
    state: SharedState,
    caller: Caller,
    StrictJson(input): StrictJson<ProposalInput>,
) -> Result<Json<RuleProposal>> {
    let ProposalInput { text, reason, query: selected } = input;
    if text.len() > MAX_TEXT || reason.len() > MAX_REASON {
        return Err(ApiError::too_large("the proposal", MAX_TEXT as u64));
    }
    let (rules, source) = (Arc::clone(active_rules(&state)?), RuleFileSource::from_text("proposal", text.clone()));
    let proposed = text.clone();
    let work = move || {
        check_host_access(&caller, &rules, "proposal", &proposed)?;
        rules.check(vec![source]).map_err(rejected_rules)
    };
    let program = check_text(&state, &text, work).await?;
    if program.rules.is_empty() {
        return Err(ApiError::bad_request("the text holds no rule"));
    }
    let (tried, matches) = try_rules(&state, program, &selected).await?;
    let proposed = Timestamp::now();
    let proposal = RuleProposal { id: 0, text, reason, proposed, tried, matches };
    state.proposals.add(proposal).map(Json).ok_or_else(|| {
        let message = format!("{MAX_PROPOSALS} proposals wait for the operator");
        ApiError::unavailable("overloaded", message)
            .remedy("the operator applies or dismisses them with `interflow rules proposals`")
    })
}

/// Evaluates rules on recorded flows, as `GET /rules/explain/{id}` does.
async fn try_rules(
    state: &SharedState,
    program: Arc<RuleProgram>,
    selected: &str,
) -> Result<(usize, Vec<ProposalMatch>)> {
    if state.records.store.is_none() {
        return Ok((0, Vec::new()));
    }
    let options = ListOptions { query: query(selected)?, limit: MAX_TRIED, ..ListOptions::default() };
    run_query(state, move |store, wanted| {
        let (mut tried, mut matches) = (0, Vec::new());
        for row in store.list_while(&options, &mut || wanted.check())? {
            let stored = |side| row.body(side).map_or(0, |b| b.kept);
            if wanted.check().is_break() || stored(Direction::Request).max(stored(Direction::Response)) > MAX_BODY {
                continue;
            }
            // A flow that cannot be read says nothing about the rules.
            let Ok(sample) = flow_fixture(store, &row) else { continue };
            tried += 1;
            let matching = explain::explain(&program, &sample).into_iter().filter(|r| r.matches);
            matches.extend(matching.map(|rule| proposal_match(rule.rule, &row)));
        }
        matches.truncate(MAX_MATCHES);
        Ok((tried, matches))
    })
    .await
}

fn proposal_match(rule: String, row: &FlowRecord) -> ProposalMatch {
    let request = row.request.as_ref();
    let path = mask_path(request.map_or("", |r| &r.path));
    ProposalMatch {
        rule,
        flow: row.id.to_string(),
        method: request.map_or_else(String::new, |r| r.method.clone()),
        url: format!("{}://{}{path}", row.scheme, row.authority),
    }
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApplyInput {
    /// The rule file to which they are added; the only one if absent.
    file: Option<String>,
}

/// `POST /rules/proposals/{id}`: adds the rules at the end of a rule file and activates it, or changes nothing.
pub async fn apply(
    state: SharedState,
    caller: Caller,
    Path(number): Path<String>,
    StrictJson(input): StrictJson<ApplyInput>,
) -> Result<Json<RulesView>> {
    let id = proposal_id(&number)?;
    let proposal = state.proposals.find(id).ok_or_else(|| missing(id))?;
    let files: Vec<String> = active_rules(&state)?.program().files.iter().map(|f| f.display().to_string()).collect();
    let file = match (input.file, <[String; 1]>::try_from(files)) {
        (Some(file), _) | (None, Ok([file])) => file,
        (None, Err(files)) => {
            return Err(ApiError::bad_request("which of the rule files?").with(|details| details.files = files));
        }
    };
    // A default file may not exist yet.
    let now = RuleFileSource::read(FilePath::new(&file)).map_or_else(|_| String::new(), |s| s.text);
    let joined = join_rules(&now, &proposal.text).map_err(|why| {
        ApiError::unprocessable("bad_rules", why)
            .remedy("add the rules by hand; `interflow rules proposals` prints them")
    })?;
    let view = write_and_activate(&state, &caller, file, joined, Some(now)).await?;
    state.proposals.remove(id);
    Ok(view)
}

/// `DELETE /rules/proposals/{id}`
pub async fn dismiss(state: SharedState, Path(number): Path<String>) -> Result<StatusCode> {
    let id = proposal_id(&number)?;
    ApiError::no_content(state.proposals.remove(id), || missing(id))
}

fn proposal_id(number: &str) -> Result<u64> {
    number.parse().map_err(|_| ApiError::bad_request(format!("`{number}` is not a number of a proposal")))
}

fn missing(id: u64) -> ApiError {
    ApiError::not_found(format!("there is no proposal {id}"))
}

/// The text of a rule file with further rules at its end. Only texts whose join is certain are joined; the result is
/// checked as a whole in any case.
fn join_rules(file: &str, proposed: &str) -> std::result::Result<String, String> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if file.lines().all(is_blank) {
        return Ok(format!("{file}{proposed}"));
    }
    let is_toml = |text: &str| text.lines().any(|l| l.starts_with("[["));
    match (is_toml(file), is_toml(proposed)) {
        (true, true) => return Ok(format!("{}\n\n{proposed}", file.trim_end())),
        (false, false) => {}
        _ => return Err("the proposal is in another format than the file".into()),
    }
    let (Some(old), Some(new)) = (RulesBlock::find(file), RulesBlock::find(proposed)) else {
        return Err("the rules of the file, or those of the proposal, do not stand under `rules:` line by line".into());
    };
    let lines: Vec<&str> = file.lines().collect();
    let items = proposed.lines().skip(new.first).take(new.end - new.first);
    let moved = items.map(|line| match line.get(new.indent..) {
        Some(rest) if !is_blank(line) => format!("{}{rest}", " ".repeat(old.indent)),
        _ => line.trim_start().to_owned(),
    });
    let mut out: Vec<String> = lines[..old.end].iter().map(|l| (*l).to_owned()).collect();
    out.extend(moved);
    out.extend(lines[old.end..].iter().map(|l| (*l).to_owned()));
    Ok(out.join("\n") + "\n")
}

/// The lines of the items of a top-level `rules:` in YAML.
struct RulesBlock {
    first: usize,
    end: usize,
    /// Spaces before the dash of an item.
    indent: usize,
}

impl RulesBlock {
    fn find(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.iter().position(|l| l.trim_end() == "rules:")? + 1;
        let is_inside = |line: &&str| line.is_empty() || line.starts_with([' ', '-', '#']);
        let length = lines[first..].iter().position(|l| !is_inside(l)).unwrap_or(lines.len() - first);
        // Blank lines and comments at its end belong to what follows.
        let block = &lines[first..first + length];
        let used = block.iter().rposition(|l| !l.trim().is_empty() && !l.starts_with('#'))? + 1;
        let item = block.iter().find(|l| l.trim_start().starts_with('-'))?;
        Some(Self { first, end: first + used, indent: item.len() - item.trim_start().len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_added_at_the_end_of_the_list() {
        let file = "# mine\nrules:\n    - name: a\n      then: { tag: x }\n\n# cases\ntests: []\n";
        let proposed = "rules:\n  - name: b\n    # why\n    then: { tag: y }\n";
        let joined = "# mine\nrules:\n    - name: a\n      then: { tag: x }\n    - name: b\n# why\n      then: { tag: y }\n\n\
                      # cases\ntests: []\n";
        assert_eq!(join_rules(file, proposed).unwrap(), joined);
        assert_eq!(join_rules("# nothing yet\n", proposed).unwrap(), format!("# nothing yet\n{proposed}"));
        assert_eq!(
            join_rules("[[rules]]\nname = \"a\"\n", "[[rules]]\nname = \"b\"\n").unwrap(),
            "[[rules]]\nname = \"a\"\n\n[[rules]]\nname = \"b\"\n"
        );
        for (file, proposed) in [
            ("rules: []\n", proposed),
            (file, "rules: [{ name: b }]\n"),
            (file, "[[rules]]\nname = \"b\"\n"),
            (file, "- name: b\n"),
        ] {
            assert!(join_rules(file, proposed).is_err(), "{file}{proposed}");
        }
    }
}
