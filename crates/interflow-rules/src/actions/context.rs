//! The flow at the phase in which rules act on it.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{
    Direction, Error, Flow, Headers, OriginalMessage, Phase, RequestHead, ResponseHead, StreamMessage,
    UpstreamOverrides,
};

use crate::body::BodyEdits;
use crate::body::content::BodyContent;
use crate::body::edit::BodyChange;
use crate::compiled::program::RuleProgram;
use crate::flow::exec_run::ExecAnswers;
use crate::flow::flow_state::RuleState;
use crate::flow::json_answers::JsonAnswers;
use crate::flow::render::RenderContext;
use crate::flow::verdict::RuleVerdict;
use crate::flow::view::FlowView;
use crate::matching::index::Candidates;
use crate::text::template::TextTemplate;

/// The request at the current phase: mutable, read-only, or absent.
pub(crate) enum RequestAccess<'a> {
    None,
    Seen(&'a RequestHead),
    Changing(&'a mut RequestHead),
    /// Saved at an earlier phase, because the pipeline no longer has it.
    Kept(Arc<RequestHead>),
}

/// A head before the rules edited it, for the record of changes.
pub(crate) enum HeadBeforeEdit {
    Request(Box<OriginalMessage<RequestHead>>),
    Response(Box<OriginalMessage<ResponseHead>>),
}

/// The flow at the phase in which rules act on it.
pub(crate) struct ActionContext<'a> {
    pub program: &'a RuleProgram,
    pub phase: Phase,
    pub flow: &'a mut Flow,
    pub request: RequestAccess<'a>,
    pub response: Option<&'a mut ResponseHead>,
    pub overrides: Option<&'a mut UpstreamOverrides>,
    pub message: Option<&'a mut StreamMessage>,
    /// The body of this phase's side without its content coding, if it was buffered.
    pub body: Option<BodyContent>,
    /// Why the body of this phase's side cannot be read, if it was needed.
    pub unread: Option<Arc<Error>>,
    /// Why the message of this phase cannot be read whole.
    pub unread_message: Option<Arc<Error>>,
    /// What JSONPaths select in the bodies of this phase.
    pub json: JsonAnswers,
    /// Edits to apply to the body of this phase, in the order of the rules.
    pub edits: BodyEdits,
    /// The flow is an intercepted tunnel: its requests are matched individually, so actions on requests do not run
    /// here.
    pub opens: bool,
    /// The URL as text, computed on demand and shared by all conditions; cleared when the request changes.
    pub url: OnceCell<String>,
    /// The rules of this phase that the request may match, looked up on demand; cleared when the request changes.
    pub candidates: Option<Candidates>,
    /// What programs (`exec` conditions) answered about the current rule.
    pub exec: ExecAnswers,
    /// The head of this phase's side before the first rule that may edit it.
    pub before: Option<HeadBeforeEdit>,
}

impl<'a> ActionContext<'a> {
    pub fn new(program: &'a RuleProgram, phase: Phase, flow: &'a mut Flow) -> Self {
        Self {
            program,
            phase,
            flow,
            request: RequestAccess::None,
            response: None,
            overrides: None,
            message: None,
            body: None,
            unread: None,
            unread_message: None,
            json: JsonAnswers::default(),
            edits: BodyEdits::default(),
            opens: false,
            url: OnceCell::new(),
            candidates: None,
            exec: ExecAnswers::default(),
            before: None,
        }
    }

    pub fn request(&self) -> Option<&RequestHead> {
        match &self.request {
            RequestAccess::None => None,
            RequestAccess::Seen(head) => Some(head),
            RequestAccess::Changing(head) => Some(head),
            RequestAccess::Kept(head) => Some(head),
        }
    }

    /// The request, if this phase may change it. Invalidates what was made of it.
    pub fn request_mut(&mut self) -> Option<&mut RequestHead> {
        self.url.take();
        self.candidates = None;
        match &mut self.request {
            RequestAccess::Changing(head) => Some(head),
            _ => None,
        }
    }

    /// What conditions and templates see of the flow at this phase.
    pub fn view(&self) -> FlowView<'_> {
        let mut view = FlowView::new(self.phase, self.flow, &self.program.constants);
        view.request = self.request();
        view.response = self.response.as_deref();
        view.message = self.message.as_deref();
        view.message_is_unread = self.unread_message.is_some();
        view.shared_url = Some(&self.url);
        view.exec = Some(&self.exec);
        view.json = Some(&self.json);
        match self.phase {
            Phase::RequestBody => view.request_body.clone_from(&self.body),
            Phase::ResponseBody => view.response_body.clone_from(&self.body),
            _ => {}
        }
        if self.phase > Phase::RequestBody {
            view.request_body = self.flow.extension::<RuleState>().and_then(|s| s.request_body.clone());
        }
        view
    }

    pub fn render(&self, template: &TextTemplate) -> String {
        template.render_view(&self.view()).into_owned()
    }

    /// The fields that actions of this phase change; `None` if they have been sent.
    pub fn head_mut(&mut self) -> Option<&mut Headers> {
        if self.phase >= Phase::ResponseHead {
            return self.response.as_deref_mut().map(|r| &mut r.headers);
        }
        self.request_mut().map(|r| &mut r.headers)
    }

    /// The fields of the message that this phase is about.
    pub fn head(&self) -> Option<&Headers> {
        match self.side() {
            Direction::Response => self.response.as_ref().map(|r| &r.headers),
            Direction::Request => self.request().map(|r| &r.headers),
        }
    }

    pub const fn side(&self) -> Direction {
        if matches!(self.phase, Phase::ResponseHead | Phase::ResponseBody) {
            Direction::Response
        } else {
            Direction::Request
        }
    }

    /// Why the body of a side cannot be read, if it was needed.
    pub fn unread(&self, side: Direction) -> Option<Arc<Error>> {
        match (side, self.phase) {
            (Direction::Request, Phase::RequestBody) | (Direction::Response, Phase::ResponseBody) => {
                self.unread.clone()
            }
            (Direction::Request, phase) if phase > Phase::RequestBody => {
                self.flow.extension::<RuleState>().and_then(|s| s.unread_request.clone())
            }
            _ => None,
        }
    }

    /// Replaces the body by this text, for the rules that follow and for what is sent.
    pub fn set_body(&mut self, text: Bytes) {
        self.body = Some(self.body.take().unwrap_or_default().with_text(text.clone()));
        self.unread = None;
        self.json.clear();
        self.edits.changes.push(BodyChange::Set(text));
    }

    /// The path of a file.
    ///
    /// # Errors
    /// As [`TextTemplate::render_path`].
    pub fn render_path(&self, template: &TextTemplate) -> Result<String, Error> {
        template.render_path(&RenderContext::from_view(&self.view()))
    }

    /// The verdict that drops the message; the flow counts as edited.
    pub fn drop_message(&mut self) -> RuleVerdict {
        self.flow.tag("edited");
        RuleVerdict::Drop
    }

    pub fn state(&mut self) -> &mut RuleState {
        self.flow.extension_mut::<RuleState>()
    }
}
