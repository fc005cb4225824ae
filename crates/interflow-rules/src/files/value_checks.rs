//! Checks what actions write into messages, as far as it has no variables, before the rules are activated.

use interflow_types::Headers;

use crate::action::Action;
use crate::params::{final_status, request_method};
use crate::text::cookies::check_cookie_value;
use crate::text::template::TextTemplate;
use crate::text::url::parse_url;

/// Whether the values of an action can be sent.
///
/// # Errors
/// What cannot, and what to write instead.
pub(crate) fn check_values(action: &Action) -> Result<(), String> {
    match action {
        Action::SetStatus(t) => check(t, &|text| {
            let number = text.trim().parse().map_err(|_| format!("`{text}` is not a status code: 200 to 999"))?;
            final_status(number).map(drop)
        }),
        Action::SetMethod(t) => check(t, &|text| request_method(text).map(drop)),
        Action::SetUrl(t) => check(t, &|text| parse_url(text).map(drop)),
        Action::AddRequestHeader(p)
        | Action::SetRequestHeader(p)
        | Action::UpdateRequestHeader(p)
        | Action::AddResponseHeader(p)
        | Action::SetResponseHeader(p)
        | Action::UpdateResponseHeader(p) => check_fields(&p.0),
        Action::SetRequestCookie(p) => p.0.iter().try_for_each(|(_, value)| check(value, &check_cookie_value)),
        Action::BearerToken(t) => check(t, &|text| check_field("Authorization", text)),
        Action::Redirect(r) => check(&r.to, &|text| check_field("Location", text)),
        Action::Answer(a) => check_fields(&a.headers).and_then(|()| check_media_type(a.content_type.as_ref())),
        Action::Block(b) => check_media_type(b.content_type.as_ref()),
        _ => Ok(()),
    }
}

fn check(template: &TextTemplate, literal: &dyn Fn(&str) -> Result<(), String>) -> Result<(), String> {
    template.as_literal().map_or(Ok(()), literal)
}

fn check_media_type(template: Option<&TextTemplate>) -> Result<(), String> {
    template.map_or(Ok(()), |t| check(t, &|text| check_field("Content-Type", text)))
}

fn check_fields(fields: &[(TextTemplate, TextTemplate)]) -> Result<(), String> {
    let one = |(name, value): &(TextTemplate, TextTemplate)| {
        check_field(name.as_literal().unwrap_or("x"), value.as_literal().unwrap_or_default())
    };
    fields.iter().try_for_each(one)
}

fn check_field(name: &str, value: &str) -> Result<(), String> {
    let refused = |e| format!("the header field `{}` cannot be sent: {e}", format!("{name}: {value}").escape_debug());
    Headers::new().append(name, value).map_err(refused)
}
