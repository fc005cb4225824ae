//! `interflow media probe`: identifies a file, the keys it needs, and whether the given keys decrypt it.

use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use interflow_media::bmff::{Movie, MovieFragment, boxes};
use interflow_media::cenc::{CencDecrypter, ContentKeyRing, IndexProbe, InitSegment};
use serde_json::{Value, json};

use super::file::MediaFile;
use super::inspect::{describe, tracks};
use super::keys;
use crate::cli::output::{FormatArgs, TextFormat, print};
use crate::{CliError, Result};

#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// MP4 file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Key to try, as KID:KEY, or KEY alone for any KID (repeatable).
    #[arg(long, value_name = "KID:KEY")]
    pub key: Vec<String>,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

/// Maximum bytes of the first fragment that are decrypted to try keys.
const MAX_TRIED_BYTES: u64 = 64 << 20;

/// Runs the command. Fails if keys are given and do not decrypt the file.
pub fn run(args: &ProbeArgs) -> Result<()> {
    let ring = keys(&args.key)?;
    let file = MediaFile::read(&args.file)?;
    let kind = kind(&file);
    let tried = if ring.is_empty() { None } else { Some(try_keys(&file, &ring)) };
    let text = match args.format.get() {
        TextFormat::Json => {
            let verdict =
                tried.as_ref().map(|t| json!({ "ok": t.is_ok(), "detail": t.as_ref().unwrap_or_else(|e| e) }));
            let tracks = file.init.as_ref().map(tracks).unwrap_or_default();
            format!("{}\n", json!({ "kind": kind, "tracks": tracks, "needs": required_keys(&file), "keys": verdict }))
        }
        TextFormat::Text => describe_probe(&file, kind, tried.as_ref()),
    };
    print(&text);
    match tried {
        Some(Err(why)) => Err(CliError::Failed(format!("{}: {why}", file.path.display()))),
        _ => Ok(()),
    }
}

fn describe_probe(file: &MediaFile, kind: &str, tried: Option<&Result<String, String>>) -> String {
    let mut text = kind.to_owned();
    describe(file, &mut text);
    for kid in required_keys(file) {
        text.push_str(&format!("needs the key of KID {}\n", kid.as_str().unwrap_or("")));
    }
    if let Some(Ok(how)) = tried {
        text.push_str(&format!("{how}\n"));
    }
    text
}

fn kind(file: &MediaFile) -> &'static str {
    let has = |kind: &[u8; 4]| file.boxes.iter().any(|b| b.kind == kind);
    match (&file.init, has(b"moof")) {
        (Some(_), true) => "fragmented MP4",
        (Some(init), false) if init.movie.tracks.iter().any(|t| !t.table.is_empty()) => "progressive MP4",
        (Some(_), false) => "init segment",
        (None, true) => "media segment (see its init segment)",
        (None, false) => "boxes without a moov box",
    }
}

fn required_keys(file: &MediaFile) -> Vec<Value> {
    file.init.iter().flat_map(InitSegment::kids).map(|kid| kid.to_string().into()).collect()
}

/// Decrypts the beginning and checks whether the result is plausible for the codec.
fn try_keys(file: &MediaFile, ring: &ContentKeyRing) -> Result<String, String> {
    let Some(init) = &file.init else { return Err("it has no init segment: concatenate both to try keys".into()) };
    if !init.is_protected() {
        return Ok("nothing is encrypted: no key is needed".into());
    }
    init.check_keys(ring).map_err(|e| e.to_string())?;
    let Some((_, end)) = file.fragment.filter(|(_, end)| (1..=MAX_TRIED_BYTES).contains(end)) else {
        return progressive(file, ring);
    };
    let head = read(file, 0, end)?;
    let mut out = Vec::new();
    let mut decrypter = CencDecrypter::new(ring.clone());
    decrypter.push(Bytes::from(head), &mut out).map_err(|e| e.to_string())?;
    let clear = Bytes::from(out.concat());
    check(&clear)
}

/// Judges a key without decoding the decrypted media.
const UNVERIFIED_KEYS: &str = "keys found; whether they are correct can only be verified by playback";

/// Whole-sample encrypted audio reveals whether a key is right: every frame starts in the same way. In video the starts
/// are unencrypted, and the rest looks random in any case.
fn check(clear: &Bytes) -> Result<String, String> {
    let find = |kind: &[u8; 4]| boxes(clear, 0).flatten().find(|b| b.kind() == kind);
    let moov = find(b"moov").and_then(|b| Movie::read(&b).ok());
    let moof = find(b"moof").and_then(|b| MovieFragment::read(&b).ok());
    let (Some(moov), Some(moof)) = (moov, moof) else { return Ok(UNVERIFIED_KEYS.into()) };
    let defaults = |id| moov.track(id).map(|t| t.defaults).unwrap_or_default();
    let placed = moof.locate_samples(defaults).map_err(|e| e.to_string())?;
    let mut is_verified = false;
    for (traf, placed) in moof.tracks.iter().zip(placed) {
        let format = moov.track(traf.track).and_then(|t| t.entries.first()).map(|e| e.format.0);
        let begins_right: fn(&[u8]) -> bool = match format.as_ref() {
            Some(b"ac-3" | b"ec-3") => |s| s.starts_with(&[0x0b, 0x77]),
            // Single channel element, channel pair element or fill element (ISO 14496-3 4.4.2.1).
            Some(b"mp4a") => |s| s.first().is_some_and(|b| matches!(b >> 5, 0 | 1 | 6)),
            _ => continue,
        };
        let samples: Vec<&[u8]> = placed.iter().filter_map(|p| clear.get(usize::try_from(p.offset).ok()?..)).collect();
        is_verified |= samples.len() >= FRAMES;
        if !samples.iter().all(|s| begins_right(s)) {
            return Err(format!(
                "the key of track {} is wrong: the decrypted data is not valid for its codec",
                traf.track
            ));
        }
    }
    Ok(if is_verified { "the keys are correct".into() } else { UNVERIFIED_KEYS.into() })
}

/// Number of frames with a valid start that rules out coincidence.
const FRAMES: usize = 16;

fn progressive(file: &MediaFile, ring: &ContentKeyRing) -> Result<String, String> {
    let length = std::fs::metadata(&file.path).map_err(|e| e.to_string())?.len();
    let mut probe = IndexProbe::new(ring.clone(), length);
    while let Some(range) = probe.next_range() {
        let data = read(file, range.start, range.end - range.start)?;
        probe.push(range.start, &data).map_err(|e| e.to_string())?;
    }
    probe.finish().map_err(|e| e.to_string())?;
    Ok(UNVERIFIED_KEYS.into())
}

fn read(file: &MediaFile, at: u64, n: u64) -> Result<Vec<u8>, String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut data = Vec::new();
    let mut open = std::fs::File::open(&file.path).map_err(|e| e.to_string())?;
    open.seek(SeekFrom::Start(at)).and_then(|_| open.take(n).read_to_end(&mut data)).map_err(|e| e.to_string())?;
    Ok(data)
}
