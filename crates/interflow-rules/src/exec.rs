//! Conditions decided by the exit code of a program: Fluxzy's `exec` filter, with a time limit.
//!
//! A program may take long, and conditions are evaluated on a worker that serves other connections meanwhile. So the
//! evaluation only says which program it needs ([`ExecAnswers::wanted`]); the rules of the phase wait for that program,
//! and the condition is evaluated again with its answer.

use std::cell::RefCell;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use interflow_query::Tristate;
use interflow_types::{ByteStr, Phase};
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::template::TextTemplate;
use crate::view::FlowView;

/// How many filter programs run at once, in the whole process.
const MAX_PROGRAMS: usize = 32;

static SLOTS: Semaphore = Semaphore::const_new(MAX_PROGRAMS);

#[derive(Debug)]
pub struct ExecCondition {
    pub program: TextTemplate,
    pub arguments: Vec<TextTemplate>,
    /// Whether the request's head is passed in `Exec.RequestHead`.
    pub head_in_env: bool,
    /// Time limit, including the wait for one of [`MAX_PROGRAMS`] slots.
    pub limit: Duration,
}

impl ExecCondition {
    pub(crate) fn phase(&self) -> Phase {
        if self.head_in_env { Phase::RequestHead } else { Phase::Authority }
    }

    pub(crate) fn describe(&self) -> String {
        format!("`{}` ends with 0", self.program.source())
    }

    /// The program's answer, if it ran; otherwise it is wanted from now on.
    pub(crate) fn evaluate(self: &Arc<Self>, view: &FlowView<'_>) -> Tristate {
        let Some(answers) = view.exec else { return Tristate::NotYet };
        let path = view.request.map(|r| r.url.path.clone());
        if let Some((.., answer)) = answers.known.iter().find(|(c, p, _)| Arc::ptr_eq(c, self) && *p == path) {
            return Tristate::Known(*answer);
        }
        answers.wanted.borrow_mut().get_or_insert_with(|| Box::new(self.render(path, view)));
        Tristate::NotYet
    }

    fn render(self: &Arc<Self>, path: Option<ByteStr>, view: &FlowView<'_>) -> ExecRun {
        let head = view.request.filter(|_| self.head_in_env).map(|request| {
            let mut head = format!("{} {} {}\r\n", request.method, request.url.path, request.version).into_bytes();
            request.headers.write_to(&mut head);
            String::from_utf8_lossy(&head).replace('\0', "")
        });
        ExecRun {
            program: self.program.render_view(view).into_owned(),
            arguments: self.arguments.iter().map(|a| a.render_view(view).into_owned()).collect(),
            head,
            path,
            condition: Arc::clone(self),
        }
    }
}

/// What programs answered in the evaluation of one rule, and the one that it needs next.
#[derive(Default)]
pub(crate) struct ExecAnswers {
    /// By condition and by the request's path, of which a rule may judge several interpretations.
    known: Vec<(Arc<ExecCondition>, Option<ByteStr>, bool)>,
    wanted: RefCell<Option<Box<ExecRun>>>,
}

impl ExecAnswers {
    /// The program that must run before the rule can be decided. If there is none it is decided, and the answers are
    /// dropped: another rule runs its programs itself.
    pub(crate) fn take_wanted(&mut self) -> Option<Box<ExecRun>> {
        let wanted = self.wanted.take();
        if wanted.is_none() {
            self.known.clear();
        }
        wanted
    }

    pub(crate) fn record(&mut self, (condition, path): (Arc<ExecCondition>, Option<ByteStr>), answer: bool) {
        self.known.push((condition, path, answer));
    }
}

/// A program to run.
pub(crate) struct ExecRun {
    program: String,
    arguments: Vec<String>,
    head: Option<String>,
    path: Option<ByteStr>,
    condition: Arc<ExecCondition>,
}

impl ExecRun {
    /// Under what its answer is recorded.
    pub(crate) fn key(&self) -> (Arc<ExecCondition>, Option<ByteStr>) {
        (Arc::clone(&self.condition), self.path.clone())
    }

    /// Runs the program; false if it cannot be started or takes too long. Cancel-safe: if this is dropped, the program
    /// is killed.
    pub(crate) async fn run(self) -> bool {
        let (program, limit) = (self.condition.program.source(), self.condition.limit);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true);
        if let Some(head) = &self.head {
            command.env("Exec.RequestHead", head);
        }
        let ran = tokio::time::timeout(limit, async {
            let _slot = SLOTS.acquire().await.expect("the semaphore is never closed");
            command.status().await
        });
        match ran.await {
            Ok(Ok(status)) => status.success(),
            Ok(Err(e)) => {
                tracing::warn!("the filter program {program} could not be started, so its rule does not match: {e}");
                false
            }
            Err(_) => {
                tracing::warn!("the filter program {program} took longer than {limit:?}, so its rule does not match");
                false
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::fixture::FlowFixture;

    async fn run(script: &str) -> bool {
        let sample = FlowFixture::for_get("http://a.test/x").with_header("X-A", "7").unwrap();
        let constants = Vec::new();
        let exec = Arc::new(ExecCondition {
            program: TextTemplate::literal("sh"),
            arguments: vec![TextTemplate::literal("-c"), TextTemplate::parse(script).unwrap()],
            head_in_env: true,
            limit: Duration::from_millis(300),
        });
        let mut answers = ExecAnswers::default();
        let evaluate = |answers: &ExecAnswers| {
            let mut view = sample.view(Phase::RequestHead, &constants);
            view.exec = Some(answers);
            exec.evaluate(&view)
        };
        assert_eq!(evaluate(&answers), Tristate::NotYet);
        let wanted = answers.take_wanted().expect("the program has not run");
        let (key, answer) = (wanted.key(), wanted.run().await);
        answers.record(key, answer);
        assert_eq!(evaluate(&answers), Tristate::Known(answer));
        assert!(answers.take_wanted().is_none());
        answer
    }

    #[tokio::test]
    async fn the_exit_code_decides() {
        assert!(run("test ${host} = a.test").await);
        assert!(!run("exit 3").await);
    }

    #[tokio::test]
    async fn hanging_program_is_killed_and_does_not_match() {
        let began = std::time::Instant::now();
        assert!(!run("exec sleep 20").await);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
