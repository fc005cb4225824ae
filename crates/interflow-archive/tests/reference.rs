//! The reference page of the JSONL format, `docs/reference/jsonl.md`, made from its JSON Schema.

use std::fmt::Write as _;

use interflow_testkit::docs::check_reference_page;
use interflow_testkit::json_schema::{cell, markdown_table, type_name};

#[test]
fn the_page_of_the_jsonl_format_is_current() {
    check_reference_page("jsonl.md", &page());
}

fn page() -> String {
    let schema = interflow_archive::jsonl::schema();
    let mut page = String::from(
        "# JSONL format\n\n\
         <!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         The lines that `interflow flows export --format jsonl` writes and `interflow flows import` reads: one flow each, in UTF-8, \
         with all its data.\n\
         The member `flow` is also what the [API](http-api.md) and `interflow flows list --format jsonl` return.\n\n\
         Bytes (bodies, header fields) are a string if they are UTF-8, and else `{\"base64\": \"…\"}`.\n\
         Members without a value are left out.\n\
         A reader should ignore members that it does not know: a version may add some. What changes the meaning of others raises `interflow`.\n\n\
         ## Line\n\n",
    );
    page.push_str(&markdown_table(&schema, &schema, "member"));
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        let about = cell(definition["description"].as_str().unwrap_or_default());
        let about = if about.is_empty() { about } else { format!("{about}\n\n") };
        if definition["properties"].is_object() {
            let table = markdown_table(definition, &schema, "member");
            write!(page, "\n## {name}\n\n{about}{table}").unwrap();
        } else if name != "Bytes" {
            write!(page, "\n## {name}\n\n{about}{}\n", type_name(definition, &schema)).unwrap();
            let variants = definition["oneOf"].as_array().into_iter().flatten();
            let mut variants = variants.peekable();
            if variants.peek().is_some() {
                page.push('\n');
            }
            for (value, about) in variants.filter_map(|v| Some((v["const"].as_str()?, v["description"].as_str()?))) {
                writeln!(page, "- `{value}`: {}", cell(about)).unwrap();
            }
        }
    }
    page
}
