//! The phase in which an action of a rule runs.

use interflow_types::Phase;

use crate::action::Action;
use crate::compiled::action_templates::visit_templates;
use crate::compiled::phase_names;
use crate::matching::condition::ConditionExpr;
use crate::params::CaptureSource;

/// Determines the phase in which an action runs.
///
/// # Errors
/// The condition reads data of a later phase, or the requested phase is outside the action's range.
///
/// `before` is the phase of the preceding action of the rule; later actions run in that phase if they can.
pub fn phase_for(
    action: &Action,
    cond: &ConditionExpr,
    requested: Option<Phase>,
    before: Option<Phase>,
) -> Result<Phase, String> {
    let info = action.info();
    let (needs, from) = required_phase(action, cond);
    if needs > info.latest {
        return Err(format!(
            "`{}` acts in the phase {} at the latest, but the rule asks for what is known in the phase {} only ({from}): it would never act. \
             Ask for something that is known earlier, or use an action of that phase",
            info.name,
            phase_names::name(info.latest),
            phase_names::name(needs),
        ));
    }
    let Some(requested) = requested else {
        let mut natural = info.natural.max(needs);
        if matches!(action, Action::Hold(_)) && natural == Phase::ResponseHead {
            // A decision about a response includes its body.
            natural = Phase::ResponseBody;
        }
        return Ok(before.filter(|b| *b <= info.latest).map_or(natural, |b| natural.max(b)));
    };
    if requested < info.earliest || requested > info.latest {
        let range = if info.earliest == info.latest {
            format!("in the phase {} only", phase_names::name(info.latest))
        } else {
            format!("from the phase {} to {}", phase_names::name(info.earliest), phase_names::name(info.latest))
        };
        return Err(format!("`{}` acts {range}, not in {}", info.name, phase_names::name(requested)));
    }
    if requested < needs {
        return Err(format!(
            "the rule is set to the phase {}, but asks for what is known in the phase {} only ({from})",
            phase_names::name(requested),
            phase_names::name(needs)
        ));
    }
    Ok(requested)
}

/// The earliest phase in which the condition and the templates are known, and the item that determines it.
fn required_phase(action: &Action, cond: &ConditionExpr) -> (Phase, String) {
    let mut latest = Phase::Authority;
    let mut from = String::new();
    cond.visit(&mut |leaf| {
        if leaf.phase() > latest {
            (latest, from) = (leaf.phase(), leaf.describe());
        }
    });
    let mut raise = |phase: Phase, what: &str| {
        if phase > latest {
            (latest, from) = (phase, what.to_owned());
        }
    };
    visit_templates(action, &mut |t| raise(t.phase(), t.source()));
    if let Action::Capture(c) = action
        && let CaptureSource::Json(side, path) = &c.source
    {
        let phase = if *side == interflow_types::Direction::Request { Phase::RequestBody } else { Phase::ResponseBody };
        raise(phase, &path.to_string());
    }
    (latest, from)
}
