//! The time by an origin's clock, which determines which segments of a live stream exist.

use std::time::Duration;

use interflow_types::Timestamp;

use super::request::MediaRequest;
use crate::dash::time::parse_date_time;
use crate::relay::CachePolicy;
use crate::relay::address::parse;

fn local_time() -> f64 {
    Timestamp::now().micros() as f64 / 1e6
}

impl MediaRequest<'_> {
    /// The time in seconds since 1970 by the first usable `UTCTiming` clock, or the local clock. The network is asked
    /// once for each clock and ten minutes.
    pub async fn origin_time(self, clocks: &[(String, String)]) -> f64 {
        for (scheme, value) in clocks {
            if scheme.starts_with("urn:mpeg:dash:utc:direct:") {
                if let Some(time) = parse_date_time(value) {
                    return time;
                }
                continue;
            }
            if !scheme.starts_with("urn:mpeg:dash:utc:http-") {
                continue;
            }
            if let Some(offset) = self.state.clocks.get(value) {
                return local_time() + offset;
            }
            // A clock that cannot be read counts as equal, and is not asked again before the time is over.
            let offset = self.fetch_clock(scheme, value).await.map_or(0.0, |time| time - local_time());
            self.state.clocks.insert(value.clone(), offset);
            return local_time() + offset;
        }
        local_time()
    }

    /// Asks a clock over HTTP: its `Date` field, or a date as the body.
    async fn fetch_clock(self, scheme: &str, address: &str) -> Option<f64> {
        let ask = self.whole_request(parse(address.split_whitespace().next()?).ok()?).ok()?;
        let document = self.state.shared.document(ask, CachePolicy::For(Duration::ZERO), 4096).await.ok()?;
        if scheme.contains("http-head") {
            let date = document.headers.get_str("date")?;
            return jiff::fmt::rfc2822::parse(date).ok().map(|z| z.timestamp().as_millisecond() as f64 / 1000.0);
        }
        document.status.is_success().then(|| parse_date_time(std::str::from_utf8(&document.body).ok()?))?
    }
}
