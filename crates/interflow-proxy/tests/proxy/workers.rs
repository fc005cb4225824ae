//! What takes long for one flow does not hold up the others of its worker. The proxy of these tests has one worker.

use std::sync::Arc;
use std::time::Duration;

use interflow_testkit::{Answer, Origin};
use interflow_types::{
    Body, BoxFuture, DeferredWork, EarlyExit, ErrorKind, Flow, MaybeFuture, Phase, PhaseSet, PlanScope, RequestHead,
    Stage,
};
use tokio::sync::Notify;

use crate::support::{Nobody, Proxy, get};

/// Enough for a worker that is free, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

async fn is_served(proxy: &Proxy, origin: &Origin) -> Answer {
    tokio::time::timeout(PATIENCE, proxy.get(&origin.url("/"))).await.expect("the worker is held up")
}

#[cfg(unix)]
mod certificates {
    use super::*;
    use interflow_types::{CertificateFiles, RequestVerdict, UpstreamOverrides};

    /// Presents a client certificate to the origin of `/slow`.
    struct Presents(CertificateFiles);

    impl Stage for Presents {
        fn name(&self) -> &'static str {
            "presents"
        }
        fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
            PhaseSet::from_phase(Phase::UpstreamConnect)
        }
        fn upstream_connect<'a>(
            &'a self,
            _: &'a mut Flow,
            head: Option<&'a RequestHead>,
            way: &'a mut UpstreamOverrides,
        ) -> MaybeFuture<'a, RequestVerdict> {
            if head.is_some_and(|h| h.url.path == "/slow") {
                way.client_certificate = Some(self.0.clone());
            }
            MaybeFuture::Ready(RequestVerdict::Continue)
        }
    }

    #[tokio::test]
    async fn a_certificate_on_a_slow_disk_holds_up_only_the_flow_that_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, none) = (dir.path().join("pipe"), dir.path().join("none"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let files = CertificateFiles::new(pipe.clone(), Some(none), None);
        let origin = Origin::http().start().await;
        let proxy = Proxy::with(vec![Arc::new(Presents(files))], |_| ()).await;
        let mut slow = proxy.connect().await;
        slow.send(get(&origin.url("/slow"))).await.unwrap();
        // It opens for writing only once the other end reads.
        let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(pipe));
        let held = tokio::time::timeout(PATIENCE, opened).await.expect("the file is read").unwrap().unwrap();
        assert_eq!(is_served(&proxy, &origin).await.status, 200);
        drop(held);
        assert_eq!(slow.answer().await.unwrap().header("x-interflow-error"), Some("stage_failed"));
    }
}

/// Defers work for flows to this port.
struct Defers(u16, Arc<Late>);

#[derive(Default)]
struct Late {
    go: Notify,
}

impl DeferredWork for Late {
    fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.go.notified().await;
            flow.tag("joined");
        })
    }

    fn finish(self: Arc<Self>, _: &mut Flow) -> bool {
        false
    }
}

impl Stage for Defers {
    fn name(&self) -> &'static str {
        "defers"
    }
    fn interest(&self, _: &PlanScope<'_>) -> PhaseSet {
        PhaseSet::from_phase(Phase::RequestBody)
    }
    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> MaybeFuture<'a, Result<Body, EarlyExit>> {
        if head.url.authority.port == self.0 {
            flow.defer(Arc::clone(&self.1) as Arc<dyn DeferredWork>);
        }
        MaybeFuture::Ready(Ok(body))
    }
}

#[tokio::test]
async fn the_end_of_a_flow_waits_for_its_work_and_the_worker_does_not() {
    let (nobody, late) = (Nobody::new(), Arc::new(Late::default()));
    let origin = Origin::http().start().await;
    let proxy = Proxy::with(vec![Arc::new(Defers(nobody.addr().port(), Arc::clone(&late)))], |_| ()).await;
    let failed = tokio::time::timeout(PATIENCE, proxy.get(&format!("http://{}/", nobody.addr()))).await;
    assert_eq!(failed.expect("the client need not wait").status, 502);
    assert_eq!(is_served(&proxy, &origin).await.status, 200);
    let flows = proxy.flows(1).await;
    assert!(flows[0].end.is_none(), "the work is not done");
    late.go.notify_one();
    let flows = proxy.flows(2).await;
    assert_eq!((flows[0].error(), &flows[0].tags[..]), (Some(ErrorKind::Connect), &["joined".to_owned()][..]));
}

#[tokio::test]
async fn shutdown_records_a_flow_whose_work_does_not_end() {
    let (nobody, late) = (Nobody::new(), Arc::new(Late::default()));
    let stages: Vec<Arc<dyn Stage>> = vec![Arc::new(Defers(nobody.addr().port(), late))];
    let proxy = Proxy::with(stages, |c| {
        c.proxy.drain_timeout = interflow_types::units::HumanDuration::from_millis(50);
    })
    .await;
    assert_eq!(proxy.get(&format!("http://{}/", nobody.addr())).await.status, 502);
    assert!(proxy.flows(0).await[0].end.is_none(), "the work is not done");
    proxy.engine.stop().await;
    assert_eq!(proxy.flows(1).await[0].error(), Some(ErrorKind::Connect));
    assert_eq!(proxy.engine.snapshot().active, 0);
}
