//! Renders templates: the values of their variables in the current flow.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Component, Path};

use interflow_types::{Direction, Error, ErrorKind, Timestamp};
use regex::bytes::Captures;

use crate::flow::view::FlowView;
use crate::matching::regex_limits::group;
use crate::text::cookies::request_cookie;
use crate::text::query_params::decode_pairs;
use crate::text::template::{ReplacementTemplate, TemplatePart, TemplateVariable, TextTemplate};

/// The input of rendering.
/// The flow, and what the current action adds to it: the field's value so far, and the groups of the regex that
/// matched.
pub(crate) struct RenderContext<'a, 'v> {
    pub view: &'a FlowView<'v>,
    pub previous: Option<&'a [u8]>,
    pub groups: Option<&'a Captures<'a>>,
}

impl<'a, 'v> RenderContext<'a, 'v> {
    pub fn from_view(view: &'a FlowView<'v>) -> Self {
        Self { view, previous: None, groups: None }
    }
}

impl TextTemplate {
    pub(crate) fn render(&self, with: &RenderContext<'_, '_>) -> Cow<'_, str> {
        if let Some(text) = self.as_literal() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(self.source().len() + 32);
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Var(variable) => variable.write(with, &mut out),
            }
        }
        Cow::Owned(out)
    }

    /// Renders everything but the groups of a regex: calls `see` with each text, and with each group name and an empty
    /// text.
    pub(crate) fn render_parts(&self, view: &FlowView<'_>, see: &mut dyn FnMut(String, Option<&str>)) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => see(text.clone(), None),
                TemplatePart::Var(TemplateVariable::Group(group)) => see(String::new(), Some(group)),
                TemplatePart::Var(variable) => {
                    let mut text = String::new();
                    variable.write(&RenderContext::from_view(view), &mut text);
                    see(text, None);
                }
            }
        }
    }

    /// Renders the path of a file. What peers send only names what is below the folders that the rules name.
    ///
    /// # Errors
    /// A value of the flow leads out of them.
    pub(crate) fn render_path(&self, with: &RenderContext<'_, '_>) -> Result<String, Error> {
        let (mut path, mut fixed) = (String::new(), String::new());
        for part in &self.parts {
            let start = path.len();
            match part {
                TemplatePart::Text(text) => path.push_str(text),
                TemplatePart::Var(variable) => variable.write(with, &mut path),
            }
            // Any name stands for a value of the flow.
            fixed.push_str(if part.is_fixed(with.view) { &path[start..] } else { "x" });
        }
        // Windows ignores dots and spaces at the end of a name.
        let is_parent = |name: &&str| name.starts_with("..") && name.trim_end_matches(['.', ' ']).is_empty();
        // How many names are before each `..`: one that follows a value takes back what the value names.
        let depths = |path: &str| {
            let (mut names, mut depths) = (0, Vec::new());
            for name in path.split(std::path::is_separator) {
                names += usize::from(!name.trim_end_matches(['.', ' ']).is_empty());
                depths.extend(name.split('\\').filter(is_parent).map(|_| names));
            }
            depths
        };
        let (depths, meant) = (depths(&path), depths(&fixed));
        let is_absolute =
            |path: &str| matches!(Path::new(path).components().next(), Some(Component::Prefix(_) | Component::RootDir));
        if path.contains('\0')
            || depths.len() > meant.len()
            || depths.iter().zip(meant).any(|(depth, meant)| *depth < meant)
            || is_absolute(&path) && !is_absolute(&fixed)
        {
            // What the rules and the environment contribute to the path is not for the client, which may see the error.
            tracing::warn!(flow = %with.view.flow.id, file = self.source(), path, "refused the path of a rule's file");
            let why = format!("a rule's file {} cannot be used: a value leads out of its folder", self.source());
            return Err(Error::new(ErrorKind::StageFailed, why));
        }
        Ok(path)
    }

    /// Whether all its values are known; those of bodies and messages only if these were read.
    pub(crate) fn is_known(&self, view: &FlowView<'_>) -> bool {
        let is_read = |side| !self.wants_body(side) || view.body_of(side).is_some();
        let has_message = view.message.is_some() && !view.message_is_unread;
        view.phase >= self.phase()
            && is_read(Direction::Request)
            && is_read(Direction::Response)
            && (has_message || !self.wants_message())
    }

    /// Whether the rules alone determine the text, whatever peers send.
    pub(crate) fn is_fixed(&self, view: &FlowView<'_>) -> bool {
        self.parts.iter().all(|part| part.is_fixed(view))
    }

    pub(crate) fn render_view(&self, view: &FlowView<'_>) -> Cow<'_, str> {
        self.render(&RenderContext::from_view(view))
    }
}

impl ReplacementTemplate {
    /// Renders it for one match of the action's regex.
    pub(crate) fn render_match(&self, view: &FlowView<'_>, previous: Option<&[u8]>, groups: &Captures<'_>) -> String {
        self.0.render(&RenderContext { view, previous, groups: Some(groups) }).into_owned()
    }
}

impl TemplatePart {
    fn is_fixed(&self, view: &FlowView<'_>) -> bool {
        match self {
            Self::Text(_) | Self::Var(TemplateVariable::Env(_)) => true,
            Self::Var(TemplateVariable::Var(name)) => view.is_fixed(name),
            Self::Var(_) => false,
        }
    }
}

impl TemplateVariable {
    /// What is absent renders as nothing. Bytes that are not UTF-8 become replacement characters.
    fn write(&self, with: &RenderContext<'_, '_>, out: &mut String) {
        let view = with.view;
        let bytes = match self {
            Self::Fact(name) => return write_fact(name, view, out),
            Self::Env(name) => return out.push_str(&std::env::var(name).unwrap_or_default()),
            Self::Var(name) => return out.push_str(view.variable(name).unwrap_or_default()),
            Self::Param(name) => {
                let mut pairs = view.request.and_then(|r| r.url.query()).into_iter().flat_map(decode_pairs);
                return out.extend(pairs.find(|(n, _)| n == name).map(|(_, value)| value));
            }
            Self::ReqHeader(name) => view.request.and_then(|r| r.headers.get(name)),
            Self::RespHeader(name) => view.response.and_then(|r| r.headers.get(name)),
            Self::Cookie(name) => view.request.and_then(|r| request_cookie(&r.headers, name)),
            Self::Group(name) => with.groups.and_then(|groups| group(groups, name)),
            Self::Previous => with.previous,
            Self::Nothing => None,
        };
        out.extend(bytes.map(String::from_utf8_lossy));
    }
}

/// The facts of a flow by their names in templates; those of later phases are empty.
fn write_fact(name: &str, view: &FlowView<'_>, out: &mut String) {
    let flow = view.flow;
    let written = match name {
        "host" => write!(out, "{}", flow.authority.host),
        "port" => write!(out, "{}", flow.authority.port),
        "scheme" => write!(out, "{}", view.scheme()),
        "secure" => write!(out, "{}", view.scheme() == interflow_types::Scheme::Https),
        "url" => write!(out, "{}", view.url()),
        "method" => view.request.map_or(Ok(()), |r| out.write_str(r.method.as_str())),
        "path" => view.request.map_or(Ok(()), |r| out.write_str(r.url.path_only())),
        "target" => view.request.map_or(Ok(()), |r| out.write_str(&r.url.path)),
        "query" => view.request.and_then(|r| r.url.query()).map_or(Ok(()), |q| out.write_str(q)),
        "status" => view.response.map_or(Ok(()), |r| write!(out, "{}", r.status.as_u16())),
        "flow.id" => write!(out, "{}", flow.id),
        "phase" => out.write_str(crate::compiled::phase_names::name(view.phase)),
        "client.ip" => write!(out, "{}", flow.client.peer.ip().to_canonical()),
        "user" => flow.user.as_deref().map_or(Ok(()), |u| out.write_str(u)),
        "listener" => out.write_str(&flow.client.listener),
        "time" => {
            let now = jiff::Timestamp::from_second((Timestamp::now().micros() / 1_000_000) as i64);
            now.map_or(Ok(()), |t| write!(out, "{t}"))
        }
        "time.unix" => write!(out, "{}", Timestamp::now().micros() / 1_000_000),
        "time.ms" => write!(out, "{}", Timestamp::now().micros() / 1000),
        "random" => write!(out, "{:032x}", u128::from_be_bytes(interflow_types::random_bytes())),
        "uuid" => {
            out.push_str(&uuid::Builder::from_random_bytes(interflow_types::random_bytes()).into_uuid().to_string());
            Ok(())
        }
        "req.body" => view.request_body.as_ref().map_or(Ok(()), |b| out.write_str(&String::from_utf8_lossy(b.text()))),
        "message" => view.message.map_or(Ok(()), |m| out.write_str(&String::from_utf8_lossy(&m.payload))),
        "resp.body" => {
            view.response_body.as_ref().map_or(Ok(()), |b| out.write_str(&String::from_utf8_lossy(b.text())))
        }
        _ => Ok(()),
    };
    written.expect("a String takes all");
}
