//! Conditions decided by the exit code of a program.
//!
//! A program may take long, and conditions are evaluated on a worker that serves other connections meanwhile. So the
//! evaluation only says which program it needs ([`ExecAnswers`](crate::flow::exec_run::ExecAnswers)); the rules of the phase
//! wait for that program, and the condition is evaluated again with its answer.

use std::sync::Arc;

use interflow_query::Tristate;
use interflow_types::ByteStr;

use crate::flow::exec_run::{ExecCondition, ExecRun};
use crate::flow::view::FlowView;

impl ExecCondition {
    /// The program's answer, if it ran; otherwise it is wanted from now on.
    pub(crate) fn evaluate(self: &Arc<Self>, view: &FlowView<'_>) -> Tristate {
        let Some(answers) = view.exec else { return Tristate::NotYet };
        let path = view.request.map(|r| r.url.path.clone());
        if let Some(answer) = answers.known(self, path.as_ref()) {
            return Tristate::Known(answer);
        }
        answers.want(|| self.render(path, view));
        Tristate::NotYet
    }

    /// Renders the program now, since the flow cannot be borrowed while it runs.
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::time::Duration;

    use interflow_types::Phase;

    use super::*;
    use crate::flow::exec_run::ExecAnswers;
    use crate::flow::fixture::FlowFixture;
    use crate::text::template::TextTemplate;

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
