//! Programs whose exit code decides a condition, with a time limit, and what they answered.

use std::cell::RefCell;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::ByteStr;
use smallvec::SmallVec;
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::text::template::TextTemplate;

/// How many filter programs run at once, in the whole process.
const MAX_PROGRAMS: usize = 32;

static SLOTS: Semaphore = Semaphore::const_new(MAX_PROGRAMS);

/// A condition that runs a program; it holds if the program ends with 0. Its output is discarded.
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
    pub(crate) fn describe(&self) -> String {
        format!("`{}` ends with 0", self.program.source())
    }
}

/// What programs answered and chance decided in the evaluation of one rule, and the program that it needs next.
#[derive(Default)]
pub(crate) struct ExecAnswers {
    /// By condition and by the request's path, of which a rule may judge several interpretations.
    known: Vec<(Arc<ExecCondition>, Option<ByteStr>, bool)>,
    /// Answers of conditions that count or are random, by the condition's address.
    drawn: RefCell<SmallVec<[(usize, bool); 2]>>,
    wanted: RefCell<Option<Box<ExecRun>>>,
}

impl ExecAnswers {
    /// The answer of a condition's program for a request with this path, if it ran.
    pub(crate) fn known(&self, condition: &Arc<ExecCondition>, path: Option<&ByteStr>) -> Option<bool> {
        let record = self.known.iter().find(|(c, p, _)| Arc::ptr_eq(c, condition) && p.as_ref() == path);
        record.map(|(.., answer)| *answer)
    }

    /// The answer of a condition that counts or is random: one for all evaluations of a rule, which waits for programs and
    /// judges several interpretations of the path.
    pub(crate) fn draw(&self, condition: usize, draw: impl FnOnce() -> bool) -> bool {
        let mut drawn = self.drawn.borrow_mut();
        if let Some((_, answer)) = drawn.iter().find(|(known, _)| *known == condition) {
            return *answer;
        }
        let answer = draw();
        drawn.push((condition, answer));
        answer
    }

    /// Says which program is needed, unless another one already is.
    pub(crate) fn want(&self, run: impl FnOnce() -> ExecRun) {
        self.wanted.borrow_mut().get_or_insert_with(|| Box::new(run()));
    }

    /// The program that must run before the rule can be decided. If there is none it is decided, and the answers are
    /// dropped: another rule runs its programs itself.
    pub(crate) fn take_wanted(&mut self) -> Option<Box<ExecRun>> {
        let pending = self.wanted.take();
        if pending.is_none() {
            self.known.clear();
            self.drawn.get_mut().clear();
        }
        pending
    }

    pub(crate) fn record(&mut self, (condition, path): (Arc<ExecCondition>, Option<ByteStr>), answer: bool) {
        self.known.push((condition, path, answer));
    }
}

/// A program to run.
pub(crate) struct ExecRun {
    pub program: String,
    pub arguments: Vec<String>,
    pub head: Option<String>,
    pub path: Option<ByteStr>,
    pub condition: Arc<ExecCondition>,
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
            // The wait for a slot counts towards the limit, so that slow programs cannot build up a queue.
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
