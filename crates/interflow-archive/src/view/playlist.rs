//! HLS playlists as a table: streams by bandwidth, or segments by start time, followed by the playlist itself.

use std::fmt::Write as _;

/// Maximum number of segments in the table; the playlist below contains all.
const MAX_ROWS: usize = 2000;

pub(super) fn format_playlist(text: &str, cap: usize) -> String {
    let mut out = String::new();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.iter().any(|l| l.starts_with("#EXT-X-STREAM-INF:")) {
        streams(&mut out, &lines);
    } else {
        segments(&mut out, &lines, cap);
    }
    out.push('\n');
    out.push_str(text.trim_end());
    out.push('\n');
    out
}

fn streams(out: &mut String, lines: &[&str]) {
    let _ = writeln!(out, "# HLS: a choice of streams\n# {:>10}  {:<11} {:<28} address", "bit/s", "pixels", "codecs");
    let mut list = None;
    // The attributes belong to the next line that is an address.
    for line in lines {
        if let Some(attributes) = line.strip_prefix("#EXT-X-STREAM-INF:") {
            list = Some(attributes);
        } else if !line.starts_with('#')
            && let Some(attributes) = list.take()
        {
            let of = |name| attribute(attributes, name).unwrap_or("-");
            let (rate, size, codecs) = (of("BANDWIDTH"), of("RESOLUTION"), of("CODECS"));
            let _ = writeln!(out, "# {rate:>10}  {size:<11} {codecs:<28} {line}");
        } else if let Some(media) = line.strip_prefix("#EXT-X-MEDIA:") {
            let of = |name| attribute(media, name).unwrap_or("-");
            let (kind, name, language) = (of("TYPE"), of("NAME"), of("LANGUAGE"));
            let _ = writeln!(out, "# {kind:>10}  {language:<11} {name:<28} {}", of("URI"));
        }
        if out.len() > 1 << 20 {
            break;
        }
    }
}

fn segments(out: &mut String, lines: &[&str], cap: usize) {
    let durations: Vec<f64> = lines.iter().filter_map(|l| duration(l)).collect();
    let total: f64 = durations.iter().sum();
    let ended = if lines.contains(&"#EXT-X-ENDLIST") { "ended" } else { "going on" };
    let keys = lines.iter().filter(|l| l.starts_with("#EXT-X-KEY:") && !l.contains("METHOD=NONE")).count();
    let locked = if keys > 0 { format!(", {keys} keys") } else { String::new() };
    let _ = writeln!(out, "# HLS: {} segments, {total:.3} s, {ended}{locked}", durations.len());
    let _ = writeln!(out, "# {:>10}  {:>8}  address", "begins", "seconds");
    let (mut at, mut length, mut rows) = (0.0, None, 0);
    for line in lines {
        if let Some(seconds) = duration(line) {
            length = Some(seconds);
        } else if !line.starts_with('#')
            && let Some(seconds) = length.take()
        {
            rows += 1;
            // The table takes at most half of the text; the playlist follows.
            if rows > MAX_ROWS || out.len() > cap / 2 {
                out.push_str("# …\n");
                break;
            }
            let _ = writeln!(out, "# {at:>10.3}  {seconds:>8.3}  {line}");
            at += seconds;
        }
    }
}

fn duration(line: &str) -> Option<f64> {
    let value = line.strip_prefix("#EXTINF:")?.split(',').next()?.trim();
    value.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0)
}

/// A value of an attribute list (RFC 8216 4.2), without its quotes.
fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = list;
    while let Some((key, after)) = rest.split_once('=') {
        // Commas within quotes do not separate attributes.
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        if key.trim() == name {
            return Some(value);
        }
        rest = next.trim_start_matches(',');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_playlist_lists_its_streams() {
        let text = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,NAME=\"English, US\",LANGUAGE=\"en\",URI=\"a.m3u8\"\n#EXT-X-STREAM-INF:BANDWIDTH=1280000,CODECS=\"avc1.4d401f,mp4a.40.2\",RESOLUTION=1280x720\nlow.m3u8\n";
        let shown = format_playlist(text, 1 << 20);
        for wanted in ["1280000  1280x720    avc1.4d401f,mp4a.40.2", "low.m3u8", "AUDIO  en", "English, US"] {
            assert!(shown.contains(wanted), "{wanted}\n{shown}");
        }
        assert!(shown.ends_with("\nlow.m3u8\n"), "{shown}");
    }

    #[test]
    fn media_playlist_view_lists_segment_start_times() {
        let text = "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:6.006,\ns1.ts\n#EXTINF:5.5,title\ns2.ts\n#EXTINF:nan,\ns3.ts\n#EXT-X-ENDLIST\n";
        let shown = format_playlist(text, 1 << 20);
        assert!(shown.starts_with("# HLS: 2 segments, 11.506 s, ended, 1 keys\n"), "{shown}");
        assert!(shown.contains("#      6.006     5.500  s2.ts\n"), "{shown}");
    }
}
