//! Thoughts that are signed over all that precedes them. Where a history differs from what it was, because it is redacted,
//! translated or shortened otherwise, Anthropic refuses the request, and so each that repeats it, until it is told to leave
//! out the thoughts that no longer fit.

use memchr::memmem;
use serde_json::{Value, json};

use super::WireFormat;

/// The value of `anthropic-beta` under which requests may say what happens to such thoughts.
pub const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Whether a history may have signed thoughts, of a client of any format. A fast scan.
pub fn may_have_signed_thoughts(body: &[u8]) -> bool {
    [&b"\"signature\""[..], b"\"redacted_thinking\"", b"\"anthropic:", b"\"YW50aHJvcGljO"]
        .iter()
        .any(|m| memmem::find(body, m).is_some())
}

/// Whether an error says that a thought is bound to another history.
pub fn is_bound_elsewhere(error: &[u8]) -> bool {
    memmem::find(error, b"bound to a different").is_some() && memmem::find(error, b"signature").is_some()
}

/// Makes a request one whose unfitting thoughts are left out. A body for Anthropic needs [`BINDING_BETA`] in its head.
pub fn leave_out_unfitting_thoughts(format: WireFormat, body: &mut Value) {
    let thinking = match format {
        WireFormat::Bedrock => {
            let fields = &mut body["additionalModelRequestFields"];
            fields["anthropic_beta"] = json!([BINDING_BETA]);
            &mut fields["thinking"]
        }
        _ => &mut body["thinking"],
    };
    // Models with such thoughts think unless they are told otherwise.
    if !thinking.is_object() {
        *thinking = json!({ "type": "adaptive" });
    }
    thinking["block_binding"] = json!({ "prefix_mismatch_behavior": "drop_block" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_that_unfitting_thoughts_are_left_out_whatever_it_says_of_thinking() {
        let binding = json!({ "prefix_mismatch_behavior": "drop_block" });
        for (thinking, kind) in [
            (json!(null), "adaptive"),
            (json!({ "type": "between_tools" }), "between_tools"),
            (json!({ "type": "adaptive", "display": "summarized" }), "adaptive"),
        ] {
            let mut body = json!({ "thinking": thinking });
            leave_out_unfitting_thoughts(WireFormat::Anthropic, &mut body);
            assert_eq!((&body["thinking"]["type"], &body["thinking"]["block_binding"]), (&json!(kind), &binding));
            assert_eq!(body["thinking"]["display"], thinking["display"]);
        }
        let mut body = json!({ "messages": [] });
        leave_out_unfitting_thoughts(WireFormat::Bedrock, &mut body);
        let fields =
            json!({ "anthropic_beta": [BINDING_BETA], "thinking": { "type": "adaptive", "block_binding": binding } });
        assert_eq!(body["additionalModelRequestFields"], fields);
    }

    #[test]
    fn the_error_of_a_bound_thought_is_told_from_others() {
        let error = |text: &str| is_bound_elsewhere(json!({ "error": { "message": text } }).to_string().as_bytes());
        assert!(error(
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
        ));
        assert!(!error("messages.1.content.0: Invalid `signature` in `thinking` block"));
    }
}
