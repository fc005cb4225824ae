//! WebVTT cues in MP4 (ISO 14496-30, `wvtt`) as a WebVTT segment of HLS, which every player reads.

use std::fmt::Write as _;

use crate::bmff::{BoxRef, MovieFragment, MovieTrack, Result, boxes};

/// The text of a segment of `track` that begins at byte `offset` of its file. `shift` is how much later pictures and sound
/// are presented, in units of 1/90,000 s.
///
/// # Errors
/// A malformed box, or samples outside of the segment.
pub fn from_mp4(track: &MovieTrack, segment: &[u8], offset: u64, shift: i64) -> Result<String> {
    // Cue times are times of the media, as are those of segments in MP4.
    let mut out = format!("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:{shift},LOCAL:00:00:00.000\n");
    for b in boxes(segment, offset) {
        let b = b?;
        if b.kind() != b"moof" {
            continue;
        }
        let fragment = MovieFragment::read(&b)?;
        let placed = fragment.locate_samples(|_| track.defaults)?;
        for (part, samples) in fragment.tracks.iter().zip(placed).filter(|(part, _)| part.track == track.id) {
            let mut time = part.time.unwrap_or(0);
            for sample in samples {
                let outside = || b.error_here("a sample is outside of the segment");
                let at =
                    sample.offset.checked_sub(offset).and_then(|at| usize::try_from(at).ok()).ok_or_else(outside)?;
                let data = segment.get(at..).and_then(|s| s.get(..sample.size as usize)).ok_or_else(outside)?;
                let start = time.saturating_add_signed(i64::from(sample.composition));
                let end = start.saturating_add(u64::from(sample.duration));
                for cue in boxes(data, sample.offset) {
                    write_cue(&cue?, (start, end), track.timescale, &mut out)?;
                }
                time = time.saturating_add(u64::from(sample.duration));
            }
        }
    }
    Ok(out)
}

/// Writes a cue (`vttc`). Other boxes are gaps and comments.
fn write_cue(cue: &BoxRef<'_>, (start, end): (u64, u64), scale: u32, out: &mut String) -> Result<()> {
    if cue.kind() != b"vttc" {
        return Ok(());
    }
    let (mut id, mut settings, mut payload) = (String::new(), String::new(), String::new());
    for part in cue.children() {
        let part = part?;
        let text = || String::from_utf8_lossy(part.content()).trim_matches(['\0', '\r', '\n']).replace('\r', "");
        match &part.kind().0 {
            b"iden" => id = text(),
            b"sttg" => settings = text(),
            b"payl" => payload = text(),
            _ => {}
        }
    }
    // An empty line would end the cue.
    let lines = |text: &str| text.lines().filter(|l| !l.trim().is_empty()).collect::<Vec<_>>().join("\n");
    let payload = lines(&payload);
    if payload.is_empty() {
        return Ok(());
    }
    out.push('\n');
    let id = lines(&id);
    if !id.is_empty() && !id.contains("-->") && !id.contains('\n') {
        let _ = writeln!(out, "{id}");
    }
    let (start, end) = (timestamp(start, scale), timestamp(end, scale));
    let settings = settings.replace('\n', " ");
    let space = if settings.is_empty() { "" } else { " " };
    let _ = writeln!(out, "{start} --> {end}{space}{settings}\n{}", payload.replace("-->", "--&gt;"));
    Ok(())
}

/// `HH:MM:SS.mmm`
fn timestamp(time: u64, scale: u32) -> String {
    let millis = u128::from(time) * 1000 / u128::from(scale.max(1));
    let (seconds, millis) = (millis / 1000, millis % 1000);
    format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
