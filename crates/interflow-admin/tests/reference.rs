//! Reference pages of what the proxy, the gateway and the API report: errors, the audit log and traces, MCP tools.

use std::fmt::Write as _;

use interflow_admin::error_kinds::API_ERROR_KINDS;
use interflow_admin::mcp::{WriteAccess, list_prompts, list_resource_templates, list_resources, list_tools};
use interflow_llm::error_codes::LLM_ERROR_CODES;
use interflow_llm_gateway::llm_telemetry::{AUDIT_FIELDS, AttributeSet, SPAN_ATTRIBUTES};
use interflow_testkit::docs::check_reference_page;
use interflow_testkit::json_schema::{self, cell};
use interflow_types::{ErrorKind, ErrorSource};

const GENERATED: &str = "<!-- Generated from the code by `make docs`; do not edit. -->";

#[test]
fn the_page_of_errors_is_current() {
    check_reference_page("errors.md", &errors());
}

#[test]
fn the_page_of_audit_log_and_traces_is_current() {
    check_reference_page("../guides/audit-and-tracing.md", &telemetry());
}

#[test]
fn the_page_of_mcp_tools_is_current() {
    check_reference_page("mcp.md", &mcp_tools());
}

fn errors() -> String {
    let mut page = format!(
        "# Errors\n\n{GENERATED}\n\n\
         Every error has a constant name, by which programs can tell errors apart; its message may change.\n\n\
         ## Proxy\n\n\
         The proxy answers a request that it cannot serve with this status, the kind in `X-Interflow-Error`, and a page, JSON or text with \
         message and remedy, as `Accept` asks.\n\
         The kind is also the label `kind` of `interflow_errors_total`, in the log, and in the record of the flow (`error:KIND` in a \
         [query](query.md)).\n\
         *At fault* is who usually caused it.\n\n\
         | kind | status | at fault | meaning | remedy |\n|---|---|---|---|---|\n"
    );
    for kind in ErrorKind::ALL {
        let source = match kind.error_source() {
            ErrorSource::Client => "client",
            ErrorSource::Upstream => "origin",
            ErrorSource::Config => "configuration",
            ErrorSource::Internal => "Interflow",
        };
        let (name, status) = (kind.as_str(), kind.status().as_u16());
        let _ = writeln!(page, "| `{name}` | {status} | {source} | {} | {} |", cell(kind.doc()), cell(kind.remedy()));
    }
    page.push_str(
        "\n## Gateway\n\n\
         The gateway answers LLM requests in the format of the provider's API, with the cause as `code` where the format has one.\n\
         `X-Interflow-Error` carries the code, or the kind of an error of the proxy.\n\
         The flow gets the tag `refused:CODE`.\n\
         A path that no route or provider serves is answered with 404 and the code `no_route`.\n\n\
         | code | status | cause | remedy |\n|---|---|---|---|\n",
    );
    for code in LLM_ERROR_CODES.iter() {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", code.code, statuses(&code.statuses), code.cause, code.remedy);
    }
    page.push_str(
        "\n## API\n\n\
         The [HTTP API](http-api.md) answers with `{\"error\": {\"kind\", \"message\", \"remedy\"}}`.\n\
         A response may name a closer remedy than the one here.\n\n\
         | kind | status | meaning | remedy |\n|---|---|---|---|\n",
    );
    for kind in API_ERROR_KINDS.iter() {
        let _ =
            writeln!(page, "| `{}` | {} | {} | {} |", kind.name, statuses(&kind.statuses), kind.meaning, kind.remedy);
    }
    page
}

fn statuses(list: &[u16]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn telemetry() -> String {
    let mut page = format!(
        "{GENERATED}\n\n\
         ## Reference\n\n\
         [`[audit]`](../reference/configuration.md#audit) and [`[telemetry]`](../reference/configuration.md#telemetry) have all keys.\n\n\
         ### Members of a line\n\n\
         A line is a JSON object with these members; one without a value is `null`.\n\
         With the hash chain, `prev` and `hash` follow; `interflow audit verify` checks them.\n\n\
         | member | meaning |\n|---|---|\n"
    );
    for field in AUDIT_FIELDS {
        let _ = writeln!(page, "| `{}` | {} |", field.name, field.doc);
    }
    page.push_str(
        "\n### Attributes of a span\n\n\
         A request is one span of kind *client*, named after operation and model, in OTLP over HTTP with JSON, by OpenTelemetry's \
         conventions for generative AI.\n\
         It continues the client's `traceparent`, if there is one.\n\
         Where the gateway may repeat a request, each [attempt](llm-routing.md) is a child of that span, named after its \
         deployment; its attributes are `server.address`, `server.port`, `url.path`, `http.response.status_code`, `error.type` and \
         those of `interflow.attempt.` (`number`, `deployment`, `model`, `state`, `hedge`, `input_tokens`, `output_tokens`, \
         `cost_usd`).\n\
         Attributes without a value are left out.\n\n\
         | attribute | meaning |\n|---|---|\n",
    );
    let of_set = |page: &mut String, set: AttributeSet| {
        for attribute in SPAN_ATTRIBUTES.iter().filter(|attribute| attribute.set == set) {
            let _ = writeln!(page, "| `{}` | {} |", attribute.name, attribute.doc);
        }
    };
    of_set(&mut page, AttributeSet::GenAi);
    for (name, title, set) in [
        ("gen_ai_legacy", "OpenTelemetry, until August 2026", AttributeSet::GenAiLegacy),
        ("openinference", "OpenInference", AttributeSet::OpenInference),
        ("langfuse", "Langfuse", AttributeSet::Langfuse),
    ] {
        let _ = write!(
            page,
            "\n#### {title}\n\nWith `\"{name}\"` in `telemetry.attributes`, beside the others.\n\n| attribute | meaning |\n|---|---|\n"
        );
        of_set(&mut page, set);
    }
    page.push_str(
        "\n#### Attributes of content\n\n\
         Only with `telemetry.content`; texts as JSON, with at most `telemetry.max_content` bytes each.\n\n\
         | set | attributes |\n|---|---|\n\
         | all | `gen_ai.request.temperature` and other parameters, `gen_ai.response.finish_reasons` |\n\
         | `gen_ai` | `gen_ai.system_instructions`, `gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.tool.definitions` |\n\
         | `openinference` | `input.value`, `output.value`, `llm.input_messages.N.message.…`, `llm.output_messages.0.message.…`, `llm.tools.N.tool.json_schema` |\n\
         | `langfuse` | `langfuse.observation.input`, `langfuse.observation.output` |\n\n\
         `interflow.content.dropped_messages` is the number of earlier messages that were left out.\n\n\
         ### Members of an event\n\n\
         A [`[[telemetry.webhook]]`](#webhooks) posts `{\"type\": \"interflow.events\", \"id\", \"events\"}`.\n\
         An event has `type` (`request.completed`, `request.refused`, `request.failed`), `time` (microseconds since 1970), `flow`, \
         `provider`, `model`, `operation`, `user`, `key`, `status`, `error`, `duration_ms`, `input_tokens`, `output_tokens`, \
         `cached_tokens`, `cost_usd`, `entities` and `tags`, and no content.\n",
    );
    page
}

fn mcp_tools() -> String {
    let mut page = format!(
        "# MCP tools\n\n{GENERATED}\n\n\
         Interflow is a server for the Model Context Protocol: `interflow mcp` on standard input and output, and `/mcp` on the \
         admin port.\n\
         Tools that change something are offered only if the server is started with `--write`, or with `admin.mcp_writes`.\n\n\
         | tool | does |\n|---|---|\n"
    );
    let reading = list_tools(WriteAccess::ReadOnly);
    let all = list_tools(WriteAccess::Writes);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    for tool in &all {
        let name = text(&tool["name"]);
        let _ = writeln!(page, "| [`{name}`](#{name}) | {} |", cell(&text(&tool["title"])));
    }
    for tool in &all {
        let writes =
            if reading.contains(tool) { "" } else { "It changes something, and is offered only if that is allowed.\n" };
        let (name, about) = (text(&tool["name"]), text(&tool["description"]));
        let _ = write!(page, "\n## `{name}`\n\n{about}\n{writes}");
        let schema = &tool["inputSchema"];
        if schema["properties"].as_object().is_some_and(|p| !p.is_empty()) {
            let _ = write!(page, "\n{}", json_schema::markdown_table(schema, schema, "parameter"));
        } else {
            page.push_str("It has no parameters.\n");
        }
    }
    page.push_str("\n## Resources\n\nThey hold the same texts as the tools give.\n\n| URI | holds |\n|---|---|\n");
    for resource in list_resources().iter().chain(&list_resource_templates()) {
        let uri = resource.get("uri").unwrap_or(&resource["uriTemplate"]);
        let _ = writeln!(page, "| `{}` | {} |", text(uri), cell(&text(&resource["description"])));
    }
    page.push_str("\n## Prompts\n\n| prompt | argument | does |\n|---|---|---|\n");
    for prompt in list_prompts() {
        let argument = &prompt["arguments"][0];
        let (name, about) = (text(&argument["name"]), text(&argument["description"]));
        let _ = writeln!(
            page,
            "| `{}` | `{name}`: {} | {} |",
            text(&prompt["name"]),
            cell(&about),
            cell(&text(&prompt["description"]))
        );
    }
    page
}

/// The names that the API's sources give to errors, and those of the table.
#[test]
fn every_kind_of_the_table_of_api_errors_is_used_and_every_used_one_is_listed() {
    let sources = sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    // `StatusCode::NOT_FOUND, "not_found"`, as in calls of `ApiError::new` and in tables of the two.
    let with_status = sources.split("StatusCode::").skip(1).filter_map(|rest| {
        let (status, name) = rest.split_once(',')?;
        let is_status = status.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        name.trim_start().strip_prefix('"').filter(|_| is_status)?.split('"').next()
    });
    // `ApiError::unavailable("no_rules", …)`, which have the status in their names.
    let calls = ["unavailable(", "unprocessable("].into_iter().flat_map(|call| sources.split(call).skip(1));
    let named = with_status.chain(calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()));
    let is_kind = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let unlisted: Vec<_> =
        named.filter(is_kind).filter(|name| !API_ERROR_KINDS.iter().any(|k| k.name == *name)).collect();
    assert!(unlisted.is_empty(), "add them to error_kinds.rs: {unlisted:?}");
    let unused: Vec<_> = API_ERROR_KINDS.iter().filter(|k| !sources.contains(&format!("\"{}\"", k.name))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn every_code_of_the_table_of_llm_errors_is_used() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let used = ["llm", "llm-gateway", "limits", "compat"].map(|c| sources(&crates.join(format!("interflow-{c}/src"))));
    // The classes of the proxy's own errors are a table: kinds, type, code.
    let classes = std::fs::read_to_string(crates.join("interflow-llm/data/error_classes.txt")).expect("UTF-8");
    let classes: Vec<_> = classes.lines().filter_map(|line| line.split(" | ").nth(2)).collect();
    let is_used = |code: &str| classes.contains(&code) || used.iter().any(|text| text.contains(&format!("\"{code}\"")));
    let unused: Vec<_> = LLM_ERROR_CODES.iter().filter(|c| !is_used(&c.code)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// All sources of a folder but the tables themselves.
fn sources(folder: &std::path::Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()) {
        let is_table = ["error_kinds.rs", "error_codes.rs"].iter().any(|name| entry.ends_with(name));
        if entry.is_dir() {
            all.push_str(&sources(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs") && !is_table {
            all.push_str(&std::fs::read_to_string(&entry).expect("UTF-8"));
        }
    }
    all
}
