//! Requests that Interflow itself makes: replays, and calls of its rooms. They pass no stages, but for those that guard the
//! way out.

use std::sync::Arc;

use interflow_flow::{Body, Flow, Phase, Request, RequestHead, Response, ResponseHead, Result, Transport};
use interflow_net::egress::{Answer, Egress};
use interflow_net::ingress::Interim;

use crate::conn::Conn;
use crate::exchange::{End, send, sending, stage_gave_up};
use crate::guarded::WithoutProxy;
use crate::hop;
use crate::tracker::Tracker;
use crate::worker::Live;

/// A request that Interflow itself makes: a replay, or a stage's own call. Its flow is recorded like any other.
/// `egress` is the way out: the worker's own, or a guarded one.
pub(crate) async fn send_own(
    conn: &Conn,
    live: Arc<Live>,
    egress: &Egress,
    mut flow: Box<Flow>,
    request: Request,
) -> Result<Response> {
    let Request { mut head, body } = request;
    let key = conn.plan_key(head.url.scheme, head.url.authority.clone(), None, Transport::Internal, None);
    flow.timings.request_head = Some(0);
    let plan = live.plans.get(&live.settings, key);
    let replay = flow.parent.is_some();
    let mut tracker = Tracker::new(flow, plan, Arc::clone(&conn.worker.counters));
    hop::clean_request(&mut head);
    hop::set_host_for(&mut head, Transport::Internal);
    let allowed = if replay { judge_replay(&mut tracker, &mut head).await } else { Ok(()) };
    tracker.begin_capture(&live.settings, Some(&head)).await;
    if let Err(e) = allowed {
        tracker.fail(&e);
        return Err(e);
    }
    let body = tracker.request_body(body, &head);
    let mut route = live.settings.route(head.url.scheme, &head.url.authority, None);
    if tracker.flow.note::<WithoutProxy>().is_some() {
        route.via = Arc::from([]);
    }
    let leaving = sending(&mut tracker, &head, body).await;
    let sent = match leaving {
        Ok((mut leaving, body)) => {
            live.settings.pseudonym.mark(&head, &mut leaving, &route, &tracker.flow);
            let leaving = leaving.as_ref().unwrap_or(&head);
            send(&mut tracker, egress, &route, leaving, body, &Interim::default()).await
        }
        Err(end) => Err(end.into_error()),
    };
    let answer = match sent {
        Ok(answer) => answer,
        Err(e) => {
            tracker.fail(&e);
            return Err(e);
        }
    };
    let Answer { head: mut response, mut body, .. } = answer;
    hop::clean_response(&mut response.headers, false);
    body = match hide_in_response(&mut tracker, &head, &mut response, body).await {
        Ok(body) => body,
        Err(e) => {
            tracker.fail(&e);
            return Err(e);
        }
    };
    tracker.response(&response);
    let body = tracker.response_body(body, &response);
    Ok(Response { head: response, body })
}

/// A replay was seen by all stages when it was recorded. Those that guard the way out, which are the ones that want the
/// phase `Sending`, are asked again: what may be reached may have changed, and it may go elsewhere now.
async fn judge_replay(tracker: &mut Tracker, head: &mut RequestHead) -> Result<()> {
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(Phase::Sending) {
        if let Some(end) = End::of(stage.request_head(&mut tracker.flow, head).get().await) {
            return Err(end.into_error());
        }
    }
    Ok(())
}

/// What the stages of the phase `Sending` put into requests, they take out of responses, whoever asked for them.
async fn hide_in_response(
    tracker: &mut Tracker,
    request: &RequestHead,
    head: &mut ResponseHead,
    mut body: Body,
) -> Result<Body> {
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(Phase::Sending) {
        if let Some(end) = End::of(stage.response_head(&mut tracker.flow, request, head).get().await) {
            return Err(end.into_error());
        }
        body = match stage.response_body(&mut tracker.flow, request, head, body).get().await {
            Ok(body) => body,
            Err(verdict) => {
                return Err(End::of(verdict).map_or_else(|| stage_gave_up(stage.name()), End::into_error));
            }
        };
    }
    Ok(body)
}
