//! What rules use of the machine that Interflow runs on, beyond the traffic: files, programs and environment variables.
//! A person who may write such a rule can do all that the process can, so the admin side asks for more rights.

use crate::action::Action;
use crate::compiled::action_templates::visit_templates;
use crate::error::RuleProblem;
use crate::files::rule_file::RuleFile;
use crate::files::rule_format::ConvertedRules;
use crate::files::sources::{ParsedRuleFile, PathSegment, RuleFileContent};
use crate::matching::condition::ConditionExpr;
use crate::params::{AnswerBody, EditParams, ReplaySource, ScriptSource};
use crate::text::template::TextTemplate;

/// What the rules of a file use of this machine, with the places. Includes are named, not read.
pub(crate) fn find(parsed: &ParsedRuleFile) -> Vec<RuleProblem> {
    match &parsed.content {
        RuleFileContent::Own(file) => find_in_own(parsed, file),
        RuleFileContent::Foreign(format, value) => find_in_converted(&format.convert(value, parsed)),
    }
}

fn find_in_own(parsed: &ParsedRuleFile, file: &RuleFile) -> Vec<RuleProblem> {
    let mut paths = Vec::new();
    for i in 0..file.include.0.len() {
        let at = [PathSegment::Key("include"), PathSegment::Index(i)];
        paths.push(parsed.problem(&at, None, "it includes another file"));
    }
    for (name, _) in file.variables.iter().filter(|(_, constant)| constant.reads_env) {
        let at = [PathSegment::Key("variables"), PathSegment::Key(name)];
        paths.push(parsed.problem(&at, None, READS_ENV));
    }
    for (name, _) in file.services.iter().filter(|(_, service)| service.command.is_some()) {
        let at = [PathSegment::Key("services"), PathSegment::Key(name)];
        paths.push(parsed.problem(&at, None, format!("the service `{name}` starts a program")));
    }
    for (i, rule) in file.rules.iter().enumerate() {
        let at = [PathSegment::Key("rules"), PathSegment::Index(i)];
        let uses = rule.then.0.iter().find_map(of_action).or_else(|| of_condition(&rule.when.0));
        paths.extend(uses.map(|why| parsed.problem(&at, rule.name.as_deref(), why)));
    }
    paths
}

fn find_in_converted(converted: &ConvertedRules) -> Vec<RuleProblem> {
    let uses = converted.rules.iter().filter_map(|rule| {
        let why = rule.actions.iter().find_map(|(_, action)| of_action(action));
        let why = why.or_else(|| of_condition(&rule.condition))?;
        Some(RuleProblem { message: why.to_owned(), rule: Some(rule.name.clone()), ..rule.place.clone() })
    });
    uses.collect()
}

const READS_ENV: &str = "it reads an environment variable";
const READS_FILE: &str = "it reads a file";

fn of_action(action: &Action) -> Option<&'static str> {
    let body = |body: &AnswerBody| matches!(body, AnswerBody::File(_)).then_some(READS_FILE);
    let uses = match action {
        Action::MapLocal(_) | Action::ClientCertificate(_) | Action::ShowCertificate(_) => Some(READS_FILE),
        Action::SaveResponseBody(_) | Action::AppendFile(_) => Some("it writes a file"),
        Action::Replay(replay) => matches!(replay.from, ReplaySource::File(_)).then_some(READS_FILE),
        Action::Script(script) => matches!(script.source, ScriptSource::File(_)).then_some(READS_FILE),
        Action::Answer(answer) => body(&answer.body),
        Action::InjectHtml(html) => body(&html.html),
        Action::EditRequestBody(edit) | Action::EditResponseBody(edit) | Action::EditMessage(edit) => {
            matches!(edit, EditParams::File(_)).then_some(READS_FILE)
        }
        _ => None,
    };
    let mut reads_env = false;
    visit_templates(action, &mut |template| reads_env |= template.reads_env());
    uses.or(reads_env.then_some(READS_ENV))
}

fn of_condition(condition: &ConditionExpr) -> Option<&'static str> {
    let mut uses = None;
    condition.visit(&mut |leaf| match leaf {
        ConditionExpr::Exec(_) => uses = Some("its condition starts a program"),
        leaf if leaf.templates().any(TextTemplate::reads_env) => uses = Some(READS_ENV),
        _ => {}
    });
    uses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sources::RuleFileSource;

    fn found(text: &str) -> Vec<String> {
        let parsed = RuleFileSource::from_text("rules.yaml", text).parse(&[]).unwrap();
        find(&parsed).into_iter().map(|p| format!("{}: {}", p.line, p.message)).collect()
    }

    #[test]
    fn every_way_to_files_programs_and_environment_variables_is_found() {
        let rule = |then: &str| format!("rules:\n  - name: a\n    then: {then}\n");
        for (then, why) in [
            ("{ map_local: /x }", "reads a file"),
            ("{ answer: { file: /x } }", "reads a file"),
            ("{ inject_html: { file: /x } }", "reads a file"),
            ("{ edit_response_body: { file: /x } }", "reads a file"),
            ("{ edit_message: { file: /x } }", "reads a file"),
            ("{ replay: /x.har }", "reads a file"),
            ("{ script: { file: /x.lua } }", "reads a file"),
            ("{ client_certificate: { certificate: /x } }", "reads a file"),
            ("{ show_certificate: { certificate: /x } }", "reads a file"),
            ("{ save_response_body: '/x/${flow.id}' }", "writes a file"),
            ("{ append_file: { file: /x, text: y } }", "writes a file"),
            ("{ answer: { body: '${env.INTERFLOW_TOKEN}' } }", "environment variable"),
            ("[{ tag: x }, { set_request_header: { X-A: 'a ${env.HOME}' } }]", "environment variable"),
        ] {
            let uses = found(&rule(then));
            assert!(uses.len() == 1 && uses[0].starts_with("2: ") && uses[0].contains(why), "{then}: {uses:?}");
        }
        for (text, why) in [
            ("include: other.yaml\n", "includes"),
            ("variables: { a: '${env.HOME}' }\n", "environment variable"),
            ("services:\n  a: { command: [sh, -c, id] }\n", "starts a program"),
        ] {
            let uses = found(text);
            assert!(uses.len() == 1 && uses[0].contains(why), "{text}: {uses:?}");
        }
        for then in [
            "{ answer: { body: '${host}' } }",
            "{ hold: {} }",
            "{ script: 'x = 1' }",
            "{ replay: { flows: 'host:a' } }",
            "{ edit_response_body: { find: a, with: b } }",
        ] {
            assert_eq!(found(&rule(then)), Vec::<String>::new(), "{then}");
        }
        assert!(found("services:\n  a: { url: 'ws://127.0.0.1:1' }\nvariables: { a: b }\n").is_empty());
    }
}
