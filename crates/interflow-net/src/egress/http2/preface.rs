//! Sends the HTTP/2 connection preface of an impersonated client.

use h2::client::Builder;
use interflow_codec::fingerprint::Http2Fingerprint;

/// Applies the fingerprint to the connection's settings, window and priorities.
#[cfg(feature = "impersonate")]
pub(super) fn apply_fingerprint(builder: &mut Builder, shape: &Http2Fingerprint) {
    use h2::frame::{PseudoId, PseudoOrder, SettingId, SettingsOrder};
    use interflow_codec::fingerprint::PseudoHeader;

    apply_settings(builder, shape);
    let order = shape.settings.iter().map(|&(id, _)| SettingId::from(id));
    builder.settings_order(SettingsOrder::builder().extend(order).build());
    // A fingerprint records the WINDOW_UPDATE of the connection, which adds to the initial 65,535 bytes (RFC 9113
    // 6.9.2).
    if shape.window > 0 {
        builder.initial_connection_window_size(shape.window.saturating_add(65_535).min(MAX_WINDOW));
    }
    let pseudo = shape.pseudo.iter().map(|p| match p {
        PseudoHeader::Method => PseudoId::Method,
        PseudoHeader::Authority => PseudoId::Authority,
        PseudoHeader::Scheme => PseudoId::Scheme,
        PseudoHeader::Path => PseudoId::Path,
    });
    builder.headers_pseudo_order(PseudoOrder::builder().extend(pseudo).build());
    apply_priorities(builder, shape);
}

/// The largest flow-control window and stream identifier: 31 bits (RFC 9113 5.1.1, 6.9.1).
#[cfg(feature = "impersonate")]
const MAX_WINDOW: u32 = (1 << 31) - 1;

#[cfg(feature = "impersonate")]
fn apply_settings(builder: &mut Builder, shape: &Http2Fingerprint) {
    use h2::frame::{ExperimentalSettings, Setting};

    let mut others = ExperimentalSettings::builder();
    for &(id, value) in &shape.settings {
        match id {
            1 => builder.header_table_size(value),
            2 => builder.enable_push(value != 0),
            3 => builder.max_concurrent_streams(value),
            4 => builder.initial_window_size(value.min(MAX_WINDOW)),
            // Frame sizes outside of these bounds must not be announced (RFC 9113 6.5.2).
            5 => builder.max_frame_size(value.clamp(16_384, (1 << 24) - 1)),
            6 => builder.max_header_list_size(value),
            8 => builder.enable_connect_protocol(value != 0),
            9 => builder.no_rfc7540_priorities(value != 0),
            _ => {
                others = others.push(Setting::from_id(id, value));
                continue;
            }
        };
    }
    builder.experimental_settings(others.build());
}

#[cfg(feature = "impersonate")]
fn apply_priorities(builder: &mut Builder, shape: &Http2Fingerprint) {
    use h2::frame::{Priorities, Priority, StreamDependency};

    // Client streams have odd numbers (RFC 9113 5.1.1).
    let mut first = shape.first_stream | 1;
    let mut frames = Priorities::builder();
    for p in &shape.priorities {
        let dependency = StreamDependency::new(p.depends_on.into(), p.weight, p.exclusive);
        frames = frames.push(Priority::new(p.stream.into(), dependency));
        // The stream ids of the priority tree are not used for requests.
        first = first.max(p.stream.saturating_add(2) | 1);
    }
    if !shape.priorities.is_empty() {
        builder.priorities(frames.build());
    }
    builder.initial_stream_id(first.min(MAX_WINDOW));
    if let Some(p) = shape.headers {
        builder.headers_stream_dependency(StreamDependency::new(p.depends_on.into(), p.weight, p.exclusive));
    }
}

/// Never called: without the feature no profile has a fingerprint.
#[cfg(not(feature = "impersonate"))]
pub(super) fn apply_fingerprint(_: &mut Builder, _: &Http2Fingerprint) {}
